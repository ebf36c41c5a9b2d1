"""Memory that a process keeps: counted by the pages that it has to get from the operating system."""

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, sys
import torch
from deelbo._memory import keep_memory

if sys.argv[1] == "keep":
    keep_memory()

def step():
    return torch.ones(20_000_000).sum()  # 80 MB

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how, **environment):
    command = [sys.executable, "-c", COUNT, how]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_memory_is_kept_unless_the_user_has_settings_of_his_own():
    assert pages("keep") < 1000
    assert pages("do not") > 10_000  # 10 times 80 MB, in pages
    assert pages("keep", MALLOC_ARENA_MAX="2") > 10_000
