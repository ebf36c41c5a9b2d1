import os

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # two test processes with two OpenMP threads each would spend their time waiting


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
