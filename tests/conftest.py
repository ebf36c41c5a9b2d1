import os
import shutil
import signal

import pytest
import torch

from shared.pictures import image_folder, text_table, tiny_bert
from shared.processes import fork_workers

CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start
    torch.set_num_threads(1)  # two test processes with two OpenMP threads each would spend their time waiting

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts jobs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The mathematics of these tests holds on both paths over the weights, so they run on both.
BOTH_PATHS = ("posteriors", "priors", "test_objective.py", "test_attachment.py", "test_state.py")


def pytest_generate_tests(metafunc):
    test = metafunc.definition
    if test.path.name in BOTH_PATHS or test.path.parent.name in BOTH_PATHS:
        paths = ["cpu"] if test.get_closest_marker("cpu_path") is not None else ["cpu", "device"]
        metafunc.fixturenames.append("weight_path")
        metafunc.parametrize("weight_path", paths, indirect=True, scope="module")


@pytest.fixture(scope="module")
def weight_path(request):
    """Which passes over the weights are taken: those of the CPU, or those of a device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEELBO_DEVICE_PATH", "1" if request.param == "device" else "0")
        yield request.param


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def forked_workers():
    """Workers of comparisons that start in a moment; see `fork_workers`."""
    with pytest.MonkeyPatch.context() as patch:
        fork_workers(patch)
        yield


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine; CI installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # CI may run as root, where Chromium has no sandbox.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


FAST = ["--steps", "20", "--batch-size", "6", "--learning-rates", "0.1,0.01", "--device", "cpu"]


@pytest.fixture(scope="session")
def image_run(tmp_path_factory):
    """A folder with `data` and a finished `run` on them; tests that change it copy it first."""
    from deelbo.cli import main

    folder = tmp_path_factory.mktemp("image_run")
    data = image_folder(folder / "data")
    model = ["--model", "shared.pictures:small", "--image-size", "28"]
    assert main(["finetune", str(data), *model, "--out", str(folder / "run"), *FAST, "--log", "tensorboard"]) == 0
    return folder


@pytest.fixture(scope="session")
def text_run(tmp_path_factory):
    """A folder with `rows.csv` and a finished `run` on a part of them; tests that change it copy it first."""
    from deelbo.cli import main

    folder = tmp_path_factory.mktemp("text_run")
    data = text_table(folder / "rows.csv", rows=24)
    command = ["finetune", str(data), "--model", f"hf:{tiny_bert(folder / 'bert')}", "--out", str(folder / "run")]
    assert main([*command, *FAST, "--test-fraction", "0.25", "--quiet"]) == 0
    return folder
