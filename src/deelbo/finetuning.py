"""One call from a network and a dataset to a trained network whose regularisation was learned."""

from __future__ import annotations

import copy
import hashlib
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo import events
from deelbo._head import Head, split_head
from deelbo._processes import from_first, lost_processes
from deelbo._seeds import own_randomness
from deelbo.folds import FoldRuns, check_folds
from deelbo.likelihoods import recognise_likelihood
from deelbo.loading import load
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.run_settings import about_run, decide
from deelbo.run_timing import Timing, check_time
from deelbo.training.batches import kind_of, labels_of
from deelbo.training.calibration import parse_calibration
from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets
from deelbo.training.settings import settings_for
from deelbo.training_run import TrainingRun


def finetune(
    model: nn.Module,
    train_set: Dataset,
    head: Head = None,
    *,
    plain_train_set: Dataset | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    precision: str = "no",
    log: str | None = None,
    checkpoint_seconds: float = 60.0,
    workers: int | None = None,
    calibrate: str = "free",
    time: str | None = None,
    listener: events.Listener = events.ignore,
    **settings: Any,
) -> Result:
    """Fine-tune a network without a validation set: the regularisation is learned, the objective chooses the rate.

    Args:
        model: Any network that gives logits (or standardised numbers); it ends with the trained weights.
        train_set: A map-style dataset of pairs (input, label) or dictionaries with "labels". Whole numbers are classes,
            rows of whole numbers 0 and 1 are several labels, floating-point numbers are targets of a regression.
        head: Name of the classifier; found automatically in timm, torchvision and Hugging Face models if None.
        plain_train_set: The same examples without augmentation, for the objective; `train_set` itself if None.
        out: Folder for checkpoints and results. An unfinished run, or one that lacks the folds, is continued.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        precision: "no", "fp16" or "bf16", for autocast.
        log: Name of one of accelerate's trackers, such as "tensorboard", which writes into `out`.
        checkpoint_seconds: Seconds between two checkpoints, from which an interrupted run continues.
        workers: Number of processes that read training examples, 0 for none. None starts some, on Linux, if the first
            steps wait for their data; the result does not depend on it.
        calibrate: How certain predictions are made: "free" finds a temperature on the training set; "folds=5" trains
            five more networks on parts of it, for a better one and for prediction sets; "none" leaves outputs as they
            are.
        time: Time for the whole run, such as "90s", "10m" or "1h30m", instead of a number of steps: some steps are
            measured, and as many are planned as fit, up to the default number. A continued run keeps its plan.
        listener: Called with the events of `deelbo.events`, for progress bars.
        settings: Fields of `Settings`: method, prior, kappa, learning_rates, lr_search, steps, batch_size, seed...
            Unless given, steps and batch_size are 12,000 and 32 for tokenised texts, 6,000 and 128 for all else.
            With prior="ptyl:FILE" the backbone starts at the mean of the source task's posterior.

    Returns:
        The best candidate, with its history.

    Raises:
        ValueError: If a setting is wrong, the data do not fit the network, or `out` holds a run of other settings.
        FileExistsError: If `out` holds something else, or a finished run.
        OSError: If there is no space for the checkpoints.
        AllDivergedError: If every learning rate diverged.

    Example:
        >>> import torch, deelbo
        >>> x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
        >>> result = deelbo.finetune(model, data, head="2", steps=30, batch_size=20, device="cpu")
        >>> sorted(result.prior_variances), result.predict(x[:5]).shape
        (['backbone', 'head'], torch.Size([5, 2]))
    """
    check_time(time, settings)
    timing = None if time is None else Timing(time)
    head = head if head is None or isinstance(head, str) else list(head)  # a list, which is what JSON gives back
    sets = TrainingSets(train_set, train_set if plain_train_set is None else plain_train_set)
    execution, folds = Execution(device, precision, log, checkpoint_seconds, workers), parse_calibration(calibrate)
    folder = None if out is None else RunFolder(out)
    accelerator = execution.accelerator(None if folder is None else folder.path)
    network = model.to(accelerator.device)
    few = sets.first_outputs(network, accelerator)
    recognised = recognise_likelihood(few.labels)
    if "likelihood" not in settings and recognised == "gaussian" and _maybe_labels(few.labels):
        warnings.warn(
            "the targets are floating-point numbers, so this is a regression; if they say which labels an example has, "
            'give whole numbers, or likelihood="bernoulli"',
            stacklevel=2,
        )
    before = copy.deepcopy(network) if folds else None
    if folds:
        check_folds(folds, sets.number)
    chosen = settings_for(kind_of(few.inputs), recognised, settings)
    num_outputs = few.outputs.numel() // len(few.outputs)
    chosen = decide(chosen, network, sets.number, num_outputs, listener)
    about = {"head": head, **about_run(chosen, execution), "num_data": sets.number, "time": timing and timing.time}
    if timing is not None:
        timing.folds = folds or 0
    if folder is not None:
        if timing is not None:
            chosen = folder.with_planned_steps(chosen)
        about["start_hash"] = _start_hash(network, head, sets)
    advice = "the same call continues the run" if out is not None else "nothing was saved"
    with lost_processes(advice), ExitStack() as locks:
        resumed = trained = False
        if folder is not None:

            def claim() -> tuple[bool, bool]:
                """Lock the folder; return whether its run lacks only the folds, and whether its run is unfinished."""
                locks.enter_context(folder.lock())
                lacks = folder.lacks_folds(folds, chosen, about)
                return lacks, not lacks and folder.check(chosen, about, network.state_dict())

            trained, resumed = from_first(claim)
        run = TrainingRun(
            network=network,
            sets=sets,
            settings=chosen,
            execution=execution,
            head=head,
            folder=folder,
            resumed=resumed,
            about=about,
            listener=listener,
            calibrated=folds is not None,
            timing=timing,
        )
        result = load(folder.path, network) if folder is not None and trained else run.train()
        if folds and before is not None:
            result.calibration = FoldRuns(
                result,
                before,
                sets,
                folds,
                head=head,
                folder=folder,
                execution=execution,
                listener=listener,
                start_hash=about.get("start_hash", ""),
            ).calibrate()
            if folder is not None and accelerator.is_main_process:
                folder.write_calibration(result.calibration.as_dict(), result.calibration.scores)
        return result


def _start_hash(network: nn.Module, head: Head, sets: TrainingSets) -> str:
    """Return a hash of the weights outside the classifier, which may be new at each call, and of all targets."""
    digest = hashlib.sha256()
    with own_randomness(torch.device("cpu")):
        targets = labels_of(sets.plain)
    backbone = split_head(network, head)[0]
    for name, value in {**{n: p.detach() for n, p in backbone.items()}, "targets": targets}.items():
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _maybe_labels(targets: Tensor) -> bool:
    """Tell whether targets look like several labels: rows of 0 and 1."""
    return targets.ndim == 2 and targets.shape[1] > 1 and bool(((targets == 0) | (targets == 1)).all())
