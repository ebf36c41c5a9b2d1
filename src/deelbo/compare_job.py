"""From data, models and names of methods to a finished comparison: what `deelbo compare` does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deelbo._modules import trainable
from deelbo.compare import Comparison, Options, Records, compare, make_tasks, write_results
from deelbo.compare.comparison import FailedRunsError
from deelbo.compare.engines import Engine, LocalEngine, RayEngine
from deelbo.compare.page import write_page
from deelbo.compare.running import inspect_model, read_data
from deelbo.compare.task import Task
from deelbo.job import LENGTHS, Job, Report, check_place
from deelbo.training.checkpoint import read_json, write_json
from deelbo.training.device import check_device, check_precision

ITERATIONS = {"image": 35, "text": 11}  # of Bayesian optimisation, the paper's
SWEEP = 10  # kappas from 1 to D, the paper's


@dataclass(frozen=True)
class CompareRequest:
    """A comparison wanted; the fields are the options of `deelbo compare`."""

    job: Job
    out: Path
    methods: tuple[str, ...]
    models: tuple[str, ...]
    records: Path | None = None
    priors: tuple[str, ...] = ("l2-sp",)
    train_sizes: tuple[int | None, ...] = (None,)
    seeds: tuple[int, ...] = (1001,)
    kappas: tuple[str, ...] | None = None
    test_size: int | None = None
    precision: str = "no"
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    engine: str = "local"
    jobs: int = 1
    ray_address: str | None = None
    cpus: float = 1
    gpus: float = 0
    device: str | None = None


def compare_job(request: CompareRequest, report: Report = lambda event: None) -> Path:
    """Make what runs are missing, and write `results.csv`, `results.md` and `compare.html`.

    Args:
        request: What to compare.
        report: See `compare`.

    Returns:
        The page.

    Raises:
        ValueError: If the data, a model, a method or a setting is not what it should be.
        FileExistsError: If the folder holds something else.
        FailedRunsError: If runs failed; the results of the others are written.
    """
    out = request.out
    folder = request.records or out / "records"
    _check_folder(out)
    for place in (out, folder):
        check_place(Path(request.job.data), place)
    check_precision(request.precision)
    if request.engine not in ("local", "ray"):
        raise ValueError(f"--engine {request.engine}: local or ray")
    if request.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, not {request.jobs}")
    if request.cpus <= 0 or request.gpus < 0:
        raise ValueError(
            f"--cpus {request.cpus:g}, --gpus {request.gpus:g}: a run needs some CPU, and no less than no GPU"
        )
    if request.device is not None:
        check_device(request.device)
    comparison = Comparison(_tasks(request), Records(folder))
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "compare.json", _summary(request))
    Records(folder).tidy()
    try:
        if comparison.wanted():
            compare(comparison, _engine(request, folder), report)
    except (FailedRunsError, KeyboardInterrupt):
        write_page(comparison, write_results(comparison, out), out)
        raise
    return write_page(comparison, write_results(comparison, out), out)


def _absolute(request: CompareRequest) -> CompareRequest:
    """Write paths out, for workers that begin in another folder."""

    def place(path: str | None) -> str | None:
        return str(Path(path).absolute()) if path is not None and Path(path).exists() else path

    def after(prefix: str, name: str) -> str:
        return prefix + str(place(name.removeprefix(prefix))) if name.startswith(prefix) else name

    job = request.job
    return replace(
        request,
        job=replace(
            job, data=str(place(job.data)), data_dir=place(job.data_dir), weights=place(job.weights),
            model=after("hf:", job.model),
        ),
        models=tuple(after("hf:", model) for model in request.models),
        priors=tuple(after("ptyl:", prior) for prior in request.priors),
    )  # fmt: skip


def _tasks(request: CompareRequest) -> list[Task]:
    request = _absolute(request)
    data = read_data(request.job, request.test_size)
    settings = {**LENGTHS[data.kind], **request.settings}
    limits = {"bo_iterations": ITERATIONS[data.kind], **request.options}
    options = Options(methods=request.methods, settings=settings, **limits)
    arguments: dict[str, Any] = {
        "priors": request.priors,
        "train_sizes": request.train_sizes,
        "seeds": request.seeds,
        "test_size": request.test_size,
        "precision": request.precision,
    }
    if request.kappas is None:
        return make_tasks(request.job, options, models=request.models, **arguments)
    tasks = []
    for model in request.models:  # the sweep depends on the network's size
        network = inspect_model(replace(request.job, model=model), request.test_size)[0].network
        kappas = _kappas(request.kappas, sum(p.numel() for p in trainable(network).values()))
        tasks += make_tasks(request.job, replace(options, kappas=kappas), models=[model], **arguments)
    return tasks


def _kappas(words: tuple[str, ...], size: int) -> tuple[float | None, ...]:
    """Return kappas: numbers, None for D/N, and the paper's sweep."""
    found: list[float | None] = []
    for word in words:
        if word.lower() in ("d/n", "auto"):
            found.append(None)
        elif word == "sweep":
            found += [float(f"{size ** (i / (SWEEP - 1)):.6g}") for i in range(SWEEP)]
        else:
            try:
                found.append(float(word))
            except ValueError as error:
                raise ValueError(f"--kappas {word}: a number, D/N or sweep") from error
    return tuple(dict.fromkeys(found))


def _engine(request: CompareRequest, folder: Path) -> Engine:
    if request.engine == "ray":
        return RayEngine(folder, request.ray_address, request.cpus, request.gpus, request.device)
    return LocalEngine(folder, request.jobs, request.device, request.out / "workers.log")


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; choose a new folder")
    if out.exists() and any(out.iterdir()):
        if not (out / "compare.json").is_file():
            raise FileExistsError(f"{out} holds something else than a comparison; choose a new folder")
        read_json(out / "compare.json")


def _summary(request: CompareRequest) -> dict[str, Any]:
    return {
        "data": request.job.data,
        "models": list(request.models),
        "methods": list(request.methods),
        "priors": list(request.priors),
        "train_sizes": list(request.train_sizes),
        "seeds": list(request.seeds),
        "settings": request.settings,
        "options": request.options,
    }
