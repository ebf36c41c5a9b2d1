"""The core needs torch and safetensors; what is missing beyond is named with its extra."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
EXTRAS = {
    "accelerate",
    "filelock",
    "numpy",
    "torchmetrics",
    "PIL",
    "typer",
    "rich",
    "pyarrow",
    "matplotlib",
    "timm",
    "torchvision",
}
EXTRAS |= {"transformers", "datasets", "sklearn", "scipy", "huggingface_hub", "peft", "efficientnet_lite_pytorch"}


def without(names, code):
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(names=names) + code], capture_output=True, text=True, check=False
    )


def test_core_alone():
    done = without(EXTRAS, "import deelbo; print(deelbo.finetune, deelbo.load)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("missing", "code", "extra"),
    [
        (
            "accelerate",
            "import deelbo, torch; deelbo.finetune(torch.nn.Linear(1, 2), [(torch.ones(1), 0)])",
            "training",
        ),
        (
            "torchmetrics",
            "import torch; from deelbo.training.evaluation import metrics; metrics(torch.eye(2), torch.arange(2))",
            "training",
        ),
        ("typer", "from deelbo.cli import main; sys.exit(main(['--help']))", "training"),
        ("timm", "from deelbo.models import load_model; load_model('timm:resnet18', 'image', ['a', 'b'])", "vision"),
        ("transformers", "from deelbo.models import load_model; load_model('hf:x', 'text', ['a', 'b'])", "text"),
        ("pyarrow", "from deelbo.data import load_data; load_data(__file__)", "text"),
        (
            "efficientnet_lite_pytorch",
            "from deelbo.models import load_model; load_model('offline:efficientnet_lite0', 'image', ['a', 'b'])",
            "offline",
        ),
    ],
)
def test_a_missing_library_is_named_with_its_extra(missing, code, extra, tmp_path):
    table = tmp_path / "rows.parquet"
    table.touch()
    done = without({missing}, code.replace("__file__", repr(str(table))))
    assert done.returncode != 0
    assert f'{missing} is missing: pip install "deelbo[{extra}]"' in done.stderr
