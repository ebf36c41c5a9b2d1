"""Where a run is computed, and in which precision."""

import pytest
import torch

from deelbo.training.device import Execution, check_device, check_precision, default_device
from shared.digits import quick


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device='gpu', but there is cpu"),
        ({"device": "cuda:1"}, "CUDA_VISIBLE_DEVICES"),
        ({"precision": "fp16"}, "needs a GPU"),
        ({"precision": "int3"}, "int3"),
    ],
)
def test_wrong_places_are_refused_before_work(options, message):
    with pytest.raises(ValueError, match=message):
        quick(**options)


@pytest.mark.parametrize(
    ("cuda", "mps", "kind"), [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_default_is_a_gpu_if_there_is_one(monkeypatch, cuda, mps, kind):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert default_device() == kind
    check_device(kind)
    check_device("cpu")
    with pytest.raises(ValueError, match=f"there is {kind}" if kind == "cpu" else f"there is {kind} and cpu"):
        check_device("tpu")


def test_precisions():
    for precision in ("no", "fp16", "bf16"):
        check_precision(precision)
    with pytest.raises(ValueError, match="precision='half', but it is no, fp16 or bf16"):
        check_precision("half")


def test_a_tracker_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match=r"log='tensorboard' needs a folder: out="):
        Execution("cpu", log="tensorboard").accelerator(None)
    assert Execution("cpu", log="tensorboard").accelerator(tmp_path).log_with


def test_a_process_may_change_its_precision():
    assert Execution("cpu", "bf16").accelerator(None).mixed_precision == "bf16"
    accelerator = Execution("cpu").accelerator(None)
    assert (accelerator.mixed_precision, accelerator.device.type) == ("no", "cpu")


def test_numbers_of_workers():
    assert Execution(workers=0).workers == 0
    with pytest.raises(ValueError, match="workers=-1, but it is a number of processes"):
        Execution(workers=-1)
