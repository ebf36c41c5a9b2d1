"""The engine of a Ray cluster gives the records of the local one, and survives the loss of workers."""

import os
import sys
import threading

import pytest
import ray

from deelbo.compare import compare
from deelbo.compare.engines import RayEngine
from shared.comparisons import FEW, journal, kill_one, small_comparison, small_options, without_times

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    # Ray's workers are very nice, and would wait for the other tests.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    paths = os.pathsep.join(path for path in sys.path if path)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
             runtime_env={"env_vars": {"PYTHONPATH": paths}})  # fmt: skip
    yield ray
    ray.shutdown()


def test_ray_with_a_killed_worker_gives_the_same_records(tmp_path, local, cluster):
    killed = []
    comparison = small_comparison(tmp_path, small_options(**FEW))
    thread = threading.Thread(target=kill_one, args=(tmp_path / "records", killed))
    thread.start()
    engine = RayEngine(tmp_path / "records", device="cpu")
    assert engine.slots == 2
    compare(comparison, engine)
    thread.join()
    assert killed
    assert max(journal(tmp_path / "records")[0].values()) == 1
    assert without_times(tmp_path / "records") == without_times(local)


def test_ray_refuses_what_the_cluster_has_not(tmp_path, cluster):
    with pytest.raises(ValueError, match="no node of the cluster has 99 CPUs"):
        RayEngine(tmp_path, cpus=99)
