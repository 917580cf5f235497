"""Summarizing a model: its parts, the shapes that pass between them, and its parameters; no weight is read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from twofold.config import Part, kind_of, unstructure
from twofold.inputs import Input
from twofold.model import saved
from twofold.model.config import MAIN, Task, class_words
from twofold.model.summary import CandidateSize, Flow, PartSummary, Size, Summary
from twofold.types import Classes, Hidden, HiddenSpec, Vocabulary

if TYPE_CHECKING:
    from twofold.model.model import Model
    from twofold.model.ranker import Ranker

ALWAYS = ("column", "max_tokens", "size", "name")
"""Names of settings that are shown even if they have their defaults, as sizes of parts are."""
LEFT_OUT = ("tokenizer", "architecture", "names", "classes", "special_tokens")
"""Names of settings that are not shown, because they are long, or because vocabularies and classes are counted."""


def summary(model: Model) -> Summary:
    """Summarizes the model: parts, shapes that pass between them, losses, and parameters by part."""
    read = _input_part("input", model.input)
    encoder = _encoder_part(model, model.config.encoder, "encoder", read.gives[0], model.config.needs())
    several = len(model.config.tasks) > 1
    losses = [f"{kind_of(task.decoder)} decoder × {task.weight:g}" for task in model.config.tasks.values()]
    written = [part for name in model.config.tasks for part in _task_parts(model, name, several)]
    return Summary((read, encoder, *written), tuple(losses), tuple(sizes(model)), notes=tuple(_notes(model)))


def ranker_summary(model: Ranker) -> Summary:
    """Summarizes the ranker: both sides, what is kept of each candidate, losses, and parameters by part."""
    config = model.config
    contexts, candidates = _input_part("contexts", model.contexts), _input_part("candidates", model.candidates)
    parts = [contexts, candidates]
    if model.joined:
        pairs = Flow("pairs of tokens", ("batch", f"positions ≤ {model.pair.limit}"))
        parts.append(_encoder_part(model, config.encoder, "encoder", pairs, config.needs()))
    if model.reads_alone:
        other = config.candidate_encoder or config.encoder
        separate = model.candidate_tower is not None
        if not model.joined:
            parts.insert(1, _encoder_part(model, config.encoder, "encoder", contexts.gives[0], config.needs()))
        encoder = _encoder_part(
            model, other, "candidate encoder" if separate else "same encoder", candidates.gives[0], config.needs()
        )
        parts.append(encoder if separate else dataclasses.replace(encoder, shown={}))
    losses = [f"{kind_of(loss)} × {loss.weight:g}" for loss in config.losses if loss.weight]
    parts += _task_parts(model, MAIN, False)
    candidate = candidate_size(model) if model.reads_alone and not model.joined else None
    return Summary(tuple(parts), tuple(losses), tuple(sizes(model)), candidate, tuple(_notes(model)))


def _part(letter: Literal["X", "f", "g", "Y"], name: str, config: Part, **facts: Any) -> PartSummary:
    """Summary of a part with its settings."""
    settings = {key: value for key, value in unstructure(config).items() if key != "kind"}
    inner = [item.name for item in dataclasses.fields(config) if isinstance(getattr(config, item.name), Part)]
    shown = {
        item.name: settings[item.name]
        for item in dataclasses.fields(config)
        if item.name not in (*inner, *LEFT_OUT) and settings[item.name] is not None and _is_shown(config, item)
    }
    return PartSummary(letter, name, kind_of(config), settings, shown, **facts)


def _is_shown(config: Part, item: dataclasses.Field[Any]) -> bool:
    """Returns True for a size of a part, and for a setting that differs from its default."""
    value = getattr(config, item.name)
    default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
    numbers = value if isinstance(value, tuple) else (value,)
    is_size = config.sizes and bool(numbers) and all(type(number) is int for number in numbers)
    return item.name in ALWAYS or is_size or value != default


def _input_part(name: str, reads: Input[Any]) -> PartSummary:
    """Summary of an input, and the tensor that the encoder reads."""
    flow = Flow(class_words(reads.config.gives), _shape(reads))
    tokens = reads.vocabulary.size if reads.tokenizer else None
    return _part("X", name, reads.config, gives=(flow,), vocabulary=tokens)


def _shape(reads: Input[Any]) -> tuple[int | str, ...]:
    """Shape of the tensor that an encoder reads; empty if it is not known."""
    spec, limit = reads.spec, reads.limit or reads.spec.limit
    positions = f"positions ≤ {limit}" if limit else "positions"
    if isinstance(spec, Vocabulary):
        return ("batch", positions)
    if spec.width:
        return ("batch", positions, spec.width)
    return ("batch", 3, *spec.size) if spec.size else ()


def _encoder_part(model: Model, config: Any, name: str, read: Flow, needs: frozenset[str]) -> PartSummary:
    """Summary of an encoder, and the fields of `Hidden` that its decoders need."""
    spec: HiddenSpec = config.spec()
    height, width = read.shape[2:4] if len(read.shape) == 4 else ("height", "width")
    flows = []
    if "states" in needs and spec.states is not None:
        flows.append(Flow("states", ("batch", _positions(spec, read), spec.states)))
    if "summary" in needs and spec.summary is not None:
        flows.append(Flow("summary", ("batch", spec.summary)))
    if "maps" in needs:
        strides = [spec.stride << level for level in range(len(spec.maps or ()))]
        for channels, stride in zip(spec.maps or (), strides, strict=True):
            flows.append(Flow("map", ("batch", channels, _divided(height, stride), _divided(width, stride))))
    return _part("f", name, config, reads=(read,), gives=tuple(flows))


def _positions(spec: HiddenSpec, read: Flow) -> int | str:
    """Number of positions of the states: that of the tokens, or of the places of the last feature map."""
    if len(read.shape) == 2:
        return read.shape[1]
    if spec.maps and len(read.shape) == 4:
        sides = [_divided(side, spec.stride << (len(spec.maps) - 1)) for side in read.shape[2:]]
        counts = [side for side in sides if isinstance(side, int)]
        return math.prod(counts) if len(counts) == len(sides) else "positions"
    return "positions"


def _divided(side: int | str, stride: int) -> int | str:
    """Side of a feature map."""
    return -(-side // stride) if isinstance(side, int) else f"{side}/{stride}" if stride > 1 else side


def _task_parts(model: Model, name: str, several: bool) -> Iterator[PartSummary]:
    """Summaries of a decoder and of its output."""
    task: Task = model.config.tasks[name]
    ending, spec = f" {name}" if several else "", model.outputs[name].spec
    needs = tuple(Flow(field) for field in sorted(task.decoder.needs() - {"finish"}))
    yield _part("g", f"decoder{ending}", task.decoder, reads=needs, gives=(Flow(class_words(task.decoder.writes)),))
    tokens = spec.size if isinstance(spec, Vocabulary) and task.output.writes_text else None
    classes = len(spec) if isinstance(spec, Classes) else None
    yield _part("Y", f"output{ending}", task.output, vocabulary=tokens, classes=classes)


def candidate_size(model: Ranker) -> CandidateSize:
    """Vectors that are kept of a candidate, as an index stores them."""
    spec = (model.config.candidate_encoder or model.config.encoder).spec()
    device, head = model.device, model.head
    states = None if spec.states is None else torch.zeros(1, 1, spec.states, device=device)
    vector = None if spec.summary is None else torch.zeros(1, spec.summary, device=device)
    mask, tokens = torch.ones(1, 1, dtype=torch.bool, device=device), torch.zeros(1, 1, dtype=torch.long, device=device)
    with torch.no_grad():
        kept = head.stored(head.candidate(Hidden(mask, states, vector, tokens=tokens)))
    width = kept.vectors.shape[-1]
    if not head.several:
        return CandidateSize(1, width, "float32")
    return CandidateSize(head.most_vectors(model.candidates.limit or None), width, "float16")


def sizes(model: Model) -> Iterator[Size]:
    """Parameters and bytes of each encoder and decoder, by their modules."""
    tensors, parameters = saved.unique_tensors(model), dict(model.named_parameters())
    names = ["encoder", "candidate_tower", *(f"decoders.{name}" for name in model.decoders)]
    for prefix in names:
        inner = [name for name in tensors if name.startswith(f"{prefix}.")]
        if inner or prefix != "candidate_tower":
            modules = dict.fromkeys(name.removeprefix(f"{prefix}.").partition(".")[0] for name in inner)
            inside = tuple(
                _size(
                    module,
                    [name for name in inner if f"{name}.".startswith(f"{prefix}.{module}.")],
                    tensors,
                    parameters,
                )
                for module in modules
            )
            shown = prefix.replace("candidate_tower", "candidate encoder").replace("decoders.", "decoder ")
            yield dataclasses.replace(_size(shown.removesuffix(f" {MAIN}"), inner, tensors, parameters), inside=inside)


def _size(name: str, inner: list[str], tensors: dict[str, Tensor], parameters: dict[str, Any]) -> Size:
    """Size of the tensors of a part."""
    learned = [parameters[tensor] for tensor in inner if tensor in parameters]
    trained = sum(parameter.numel() for parameter in learned if parameter.requires_grad)
    held = sum(tensors[tensor].numel() * tensors[tensor].element_size() for tensor in inner)
    return Size(name, sum(parameter.numel() for parameter in learned), trained, held)


def _notes(model: Model) -> Iterator[str]:
    """Tied parameters, and classes that only the training rows tell."""
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            yield f"{name} is tied to {first[id(parameter)]} and counted there"
    for name, output in model.outputs.items():
        if isinstance(output.spec, Classes) and not len(output.spec):
            said = "the number of classes is known after training; parameters that depend on it are not counted"
            yield f"{name}: {said}" if len(model.outputs) > 1 else said
