"""The work of `deelbo compare`: from data, models and names of methods to a finished comparison."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deelbo import events
from deelbo._files import read_json, write_json
from deelbo._modules import trainable
from deelbo.compare import Comparison, Options, Problem, Records, compare, make_problems, write_results
from deelbo.compare.engines import ENGINES, Engine
from deelbo.compare.page import write_page
from deelbo.compare.problem import kappa_sweep
from deelbo.compare.running import inspect_model, read_data
from deelbo.errors import FailedRunsError
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.device import check_device, check_precision
from deelbo.training.settings import LENGTHS

ITERATIONS = {"image": 35, "text": 11}  # iterations of Bayesian optimisation in the paper
REPETITIONS = {"image": 5, "text": 10}  # and how often it was repeated


@dataclass(frozen=True)
class CompareRequest:
    """All that defines a comparison.

    Args:
        data_spec: Specification of the data.
        model_specs: Specifications of the models.
        out: Folder for the results.
        methods: Names of the methods.
        records: Folder where single runs are kept; OUT/records if None.
        priors: Names of the priors.
        train_sizes: Sizes of training subsets, which keep the proportions of classes; None for the whole training set.
        per_class: Numbers of training examples of each class, for further subsets; instead of the whole training set if
            no `train_sizes` are given.
        seeds: Seeds; each chooses a training subset and is the seed of its runs.
        kappas: Values of kappa for DE-ELBO: numbers, "D/N" or "sweep" (ten from 1 to D); D/N if None.
        test_size: Number of test examples to use; None for all.
        precision: Precision of autocast: "no", "fp16" or "bf16".
        settings: Fields of `Settings` that all runs share.
        options: Further fields of `Options`; `bo_runs` may be "paper" for as many repetitions as there.
        engine: Engine that makes the runs: "local" (this machine) or "ray" (a cluster).
        jobs: Number of runs at a time of the local engine.
        ray_address: Address of a running Ray cluster; None to start one on this machine.
        cpus: Number of cores for each run of the Ray engine.
        gpus: Number of GPUs for each run of the Ray engine.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
    """

    data_spec: DataSpec
    model_specs: tuple[ModelSpec, ...]
    out: Path
    methods: tuple[str, ...]
    records: Path | None = None
    priors: tuple[str, ...] = ("l2-sp",)
    train_sizes: tuple[int | None, ...] = (None,)
    per_class: tuple[int, ...] = ()
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

    def check(self) -> None:
        """Raise an error for values that are wrong whatever the data are.

        Raises:
            ValueError: If a value is out of range.
        """
        check_precision(self.precision)
        if self.engine not in ENGINES:
            raise ValueError(f"engine={self.engine!r}, but it is one of {', '.join(ENGINES)}")
        if self.jobs < 1:
            raise ValueError(f"jobs={self.jobs}, but it must be at least 1")
        if self.cpus <= 0 or self.gpus < 0:
            raise ValueError(
                f"cpus={self.cpus:g}, gpus={self.gpus:g}: a run needs some CPU, and gpus must be 0 or more"
            )
        if self.device is not None:
            check_device(self.device)

    def with_absolute_paths(self) -> CompareRequest:
        """Return the request with absolute paths, for workers that start in another folder."""

        def absolute(path: str | None) -> str | None:
            return str(Path(path).absolute()) if path is not None and Path(path).exists() else path

        def absolute_after(name: str) -> str:  # for "hf:FOLDER" and "ptyl:FILE"
            prefix, _, path = name.partition(":")
            return f"{prefix}:{absolute(path)}" if path else name

        data = self.data_spec
        return replace(
            self,
            data_spec=replace(data, data=str(absolute(data.data)), data_dir=absolute(data.data_dir)),
            model_specs=tuple(
                replace(spec, model=absolute_after(spec.model), weights=absolute(spec.weights))
                for spec in self.model_specs
            ),
            priors=tuple(absolute_after(prior) for prior in self.priors),
        )


def compare_job(request: CompareRequest, listener: events.Listener = events.ignore) -> Path:
    """Make the runs that are missing, and write `results.csv`, `results.md` and `compare.html`.

    Args:
        request: Data, models, methods and settings of the comparison.
        listener: Called with the events of the comparison.

    Returns:
        Path of the page.

    Raises:
        ValueError: If the data, a model, a method or a setting cannot be used.
        FileExistsError: If the folder holds something else than a comparison.
        FailedRunsError: If runs failed; the results of the others are written.
    """
    out = request.out
    records = Records(request.records or out / "records")
    _check_folder(out)
    for folder in (out, records.folder):
        request.data_spec.check_outside(folder)
    request.check()
    comparison = Comparison(_problems(request.with_absolute_paths(), listener), records)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "compare.json", _summary(request))
    records.tidy()
    try:
        if comparison.wanted():
            compare(comparison, _engine(request, records.folder), listener)
    except (FailedRunsError, KeyboardInterrupt):
        write_page(comparison, write_results(comparison, out), out)
        raise
    return write_page(comparison, write_results(comparison, out), out)


def _problems(request: CompareRequest, listener: events.Listener) -> list[Problem]:
    data = read_data(request.data_spec, request.test_size)
    for text in (data.describe(), *data.notes):
        listener(events.Note(text))
    settings = {**LENGTHS[data.kind], "likelihood": data.targets.likelihood, **request.settings}
    limits = {"bo_iterations": ITERATIONS[data.kind], **request.options}
    if limits.get("bo_runs") == "paper":
        limits["bo_runs"] = REPETITIONS[data.kind]
    options = Options(methods=request.methods, settings=settings, **limits)
    arguments: dict[str, Any] = {
        "priors": request.priors,
        "train_sizes": request.train_sizes,
        "per_class": request.per_class,
        "seeds": request.seeds,
        "test_size": request.test_size,
        "precision": request.precision,
    }
    if request.kappas is None:
        return make_problems(request.data_spec, request.model_specs, options, **arguments)
    problems = []
    for spec in request.model_specs:  # the sweep depends on the network's size
        network, _ = inspect_model(spec, request.data_spec, request.test_size)
        kappas = _kappas(request.kappas, sum(p.numel() for p in trainable(network).values()))
        problems += make_problems(request.data_spec, [spec], replace(options, kappas=kappas), **arguments)
    return problems


def _kappas(words: tuple[str, ...], size: int) -> tuple[float | None, ...]:
    """Return kappas: numbers, None for D/N, and the paper's sweep."""
    kappas: list[float | None] = []
    for word in words:
        if word.lower() in ("d/n", "auto"):
            kappas.append(None)
        elif word == "sweep":
            kappas += kappa_sweep(size)
        else:
            try:
                kappas.append(float(word))
            except ValueError as error:
                raise ValueError(f"kappas={word}, but it is a number, D/N or sweep") from error
    return tuple(dict.fromkeys(kappas))


def _engine(request: CompareRequest, records: Path) -> Engine:
    resources = {"ray_address": request.ray_address, "cpus": request.cpus, "gpus": request.gpus, "jobs": request.jobs}
    return ENGINES[request.engine](records, device=request.device, log=request.out / "workers.log", **resources)


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; choose a new folder")
    if out.exists() and any(out.iterdir()):
        if not (out / "compare.json").is_file():
            raise FileExistsError(f"{out} holds something else than a comparison; choose a new folder")
        read_json(out / "compare.json")


def _summary(request: CompareRequest) -> dict[str, Any]:
    return {
        "data": request.data_spec.data,
        "models": [spec.model for spec in request.model_specs],
        "methods": list(request.methods),
        "priors": list(request.priors),
        "train_sizes": list(request.train_sizes),
        "per_class": list(request.per_class),
        "seeds": list(request.seeds),
        "settings": request.settings,
        "options": request.options,
    }
