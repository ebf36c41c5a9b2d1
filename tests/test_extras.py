"""The core needs torch and safetensors; what is missing beyond is named with its extra."""

import json
import subprocess
import sys

import pytest

from deelbo._extras import require

pytestmark = pytest.mark.slow

BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
# Each program runs in a fork of one process that has imported torch and nothing more, which takes the longest.
FORKS = """
import json, os, sys, torch
codes = {}
for name, code in json.loads(sys.argv[1]).items():
    assert name not in sys.modules
    if not (child := os.fork()):
        os.dup2(os.open(os.path.join(sys.argv[2], name), os.O_WRONLY | os.O_CREAT), 2)
        try:
            exec(code)
        except SystemExit as end:
            os._exit(end.code)
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(codes))
"""
EXTRAS = {
    *("accelerate", "filelock", "numpy", "torchmetrics", "PIL", "typer", "rich", "pyarrow", "matplotlib", "timm"),
    *("torchvision", "transformers", "datasets", "sklearn", "scipy", "huggingface_hub", "peft"),
    *("efficientnet_lite_pytorch",),
}
LOAD = (
    "from deelbo.data import Targets; from deelbo.models import load_model; "
    "load_model({!r}, {!r}, Targets('classification', ['a', 'b']))"
)
PROGRAMS = {
    "accelerate": "import deelbo; deelbo.finetune(torch.nn.Linear(1, 2), [(torch.ones(1), 0)])",
    "torchmetrics": "from deelbo import metrics; metrics.compute_metrics('categorical', torch.eye(2), torch.arange(2))",
    "typer": "from deelbo.cli import main; sys.exit(main(['--help']))",
    "timm": LOAD.format("timm:resnet18", "image"),
    "transformers": LOAD.format("hf:x", "text"),
    "pyarrow": "from deelbo.data import load_data; load_data(TABLE)",
    "efficientnet_lite_pytorch": LOAD.format("offline:efficientnet_lite0", "image"),
}


def test_core_alone():
    code = BLOCK.format(names=EXTRAS) + "import deelbo; print(deelbo.finetune, deelbo.load)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Each program's exit code and error when its library is missing."""
    folder = tmp_path_factory.mktemp("errors")
    table = folder / "rows.parquet"
    table.touch()
    programs = {
        name: BLOCK.format(names={name}) + code.replace("TABLE", repr(str(table))) for name, code in PROGRAMS.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(programs), str(folder)], stdout=subprocess.PIPE, check=True
    )
    codes = json.loads(done.stdout)
    return {name: (codes[name], (folder / name).read_text()) for name in PROGRAMS}


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        ("accelerate", "training"),
        ("torchmetrics", "training"),
        ("typer", "training"),
        ("timm", "vision"),
        ("transformers", "text"),
        ("pyarrow", "text"),
        ("efficientnet_lite_pytorch", "offline"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(said, missing, extra):
    code, error = said[missing]
    assert code != 0
    assert f'{missing} is missing: pip install "deelbo[{extra}]"' in error


def test_deprecations_of_a_library_are_not_for_our_users(tmp_path, monkeypatch, recwarn):
    (tmp_path / "old_fashioned.py").write_text("import warnings\nwarnings.warn('too old', FutureWarning)\n")
    monkeypatch.syspath_prepend(tmp_path)
    require("old_fashioned", "rivals")
    assert not recwarn.list
