"""Networks of Hugging Face's transformers, for images and for texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo._head import find_head
from deelbo._hub import cache_without_network, unavailable
from deelbo._modules import select
from deelbo._wording import first_line, some_of
from deelbo.data.images import ImageFormat
from deelbo.models.base import MODEL_SOURCES, LoadedModel, ModelRequest
from deelbo.models.sentences import OWN, SentenceClassifier, stated_pooling

_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "regression": "regression",
    "multilabel": "multi_label_classification",
}
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # PIL's numbers


@MODEL_SOURCES.register("hf", "Hugging Face models for images or texts, by name or folder")
def from_hugging_face(request: ModelRequest) -> LoadedModel:
    """Return a network from the hub, its cache, a local folder, or a run's own folder."""
    return load_transformer(request, request.name)


def load_transformer(request: ModelRequest, name: str, **changes: Any) -> LoadedModel:
    """Return a network with label names in its configuration, and its tokenizer or image size.

    Args:
        request: The network that is wanted.
        name: Name of the model on the hub, or a folder.
        changes: Values of its configuration that are changed, such as num_hidden_layers=3 for its first three layers.
    """
    transformers = require("transformers", "text")
    where = name if request.folder is None else str(request.folder)
    if request.folder is None and name.startswith((".", "/", "~")) and not Path(name).exists():
        raise ValueError(f"unknown model {request.spec!r}: no such folder")
    automatic = {
        "text": transformers.AutoModelForSequenceClassification,
        "image": transformers.AutoModelForImageClassification,
    }[request.kind]
    names = request.targets.names
    labels = {
        "id2label": dict(enumerate(names)),
        "label2id": {name: i for i, name in enumerate(names)},
        "problem_type": _PROBLEM_TYPES[request.targets.task],
    }
    with _quiet(transformers), cache_without_network():
        wanted = {"num_labels": request.targets.num_outputs, **labels, **changes}
        config = _fetch(request, transformers.AutoConfig, where, **wanted)
        pooling = (request.pooling or stated_pooling(where, config) or OWN) if request.kind == "text" else OWN
        if pooling == OWN and type(config) not in automatic._model_mapping:
            raise ValueError(f"{request.spec} ({config.model_type}) is no network for {request.kind}s")
        if request.image_size is not None and hasattr(config, "image_size"):
            config.image_size = request.image_size
        reader = _fetch(
            request, transformers.AutoTokenizer if request.kind == "text" else transformers.AutoImageProcessor, where
        )
        if request.kind == "text" and reader.pad_token is None:  # GPT-like models were trained without padding
            reader.pad_token = reader.eos_token
        if request.kind == "text" and config.pad_token_id is None:
            config.pad_token_id = reader.pad_token_id
        if hasattr(config, "sentence_pooling"):  # of a network that deelbo exported, perhaps with another pooling
            config.sentence_pooling = pooling
        if pooling != OWN:
            encoder = _encoder(request, where, config)
            network: Any = SentenceClassifier(encoder, pooling, request.targets.num_outputs)
        elif request.pretrained:
            options = {"config": config, "ignore_mismatched_sizes": True, "output_loading_info": True}
            network, loading_info = _fetch(request, automatic, where, **options)
            _check_loaded(request, loading_info, find_head(network))
            _new_head(network)
        else:
            network = automatic.from_config(config)
    files = (network.config, reader)
    if request.kind == "text":
        return LoadedModel(network.float(), tokenizer=reader, files=files)
    return LoadedModel(network.float(), _image_format(reader, request.image_size), files=files)


def _fetch(request: ModelRequest, automatic: Any, where: str, **options: Any) -> Any:
    try:
        return automatic.from_pretrained(where, **options)
    except (OSError, ValueError) as error:
        if Path(where).is_dir():
            raise ValueError(f"{request.spec}: {where} is no model of Hugging Face: {first_line(error)}") from error
        raise unavailable(request.spec, error) from error


def _encoder(request: ModelRequest, where: str, config: Any) -> Any:
    """Return the transformer without a classifier, and without the layer that pools in BERT's way."""
    automatic = require("transformers", "text").AutoModel
    if request.pretrained:
        options = {"config": config, "output_loading_info": True}
        encoder, loading_info = _fetch(request, automatic, where, **options)
        _check_loaded(request, loading_info, [])
    else:
        encoder = automatic.from_config(config)
    if config.is_encoder_decoder:
        encoder = encoder.get_encoder()
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # its output is not used
    return encoder


def _check_loaded(request: ModelRequest, loading_info: dict[str, Any], head: list[str]) -> None:
    """Refuse weights that leave a part of the network other than classifier and pooler at random values."""
    shapes = [key if isinstance(key, str) else key[0] for key in loading_info["mismatched_keys"]]
    missing = [*loading_info["missing_keys"], *shapes]
    new = set(select(missing, head))
    if lost := sorted(key for key in missing if key not in new and "pooler" not in key):
        hint = (
            f"; image_size={request.image_size}, but its position embeddings are for another"
            if request.image_size and shapes
            else ""
        )
        raise ValueError(f"the weights of {request.spec} do not fit: missing or of another shape {some_of(lost)}{hint}")


def _new_head(network: Any) -> None:
    """Initialise the classifier anew: one of the same size may have been loaded, but it belongs to another task."""
    for part in find_head(network):
        module = network.get_submodule(part)
        for marked in (*module.modules(), *module.parameters()):
            marked._is_hf_initialized = False  # else transformers would not initialise what was loaded
        module.apply(network._init_weights)


def _image_format(processor: Any, image_size: int | None) -> ImageFormat:
    size = getattr(processor, "crop_size", None) or processor.size
    sides = dict(size) if not isinstance(size, int) else {"height": size}
    side = sides.get("height") or sides.get("shortest_edge") or 224
    mean, std = (tuple(value) if value else None for value in (processor.image_mean, processor.image_std))
    resampling = _RESAMPLING.get(int(getattr(processor, "resample", 3) or 0), "bicubic")
    return ImageFormat(image_size or side, mean, std, resampling)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence transformers' progress bars and its warnings that the classifier is new, which is intended."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
