"""Cross-encoders of transformers: classifiers of pairs with one label, whose logit is the score of a pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from twofold import storage
from twofold.config import part_config, structure
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.text import Config as TextInput
from twofold.layers.pooling import Dense
from twofold.model import sentences
from twofold.model.config import MAIN, ModelConfig, Task
from twofold.model.ranker import Ranker
from twofold.outputs.ranking import Config as RankingOutput

KINDS = ("weight", "bias")
CLASSIFIER = "ForSequenceClassification"
"""Suffix of the architectures that classify whole texts."""
ELSEWHERE = "load it by transformers, or train one: decoder: {kind: cross}"


@dataclass(frozen=True)
class Layers:
    """Names of the two layers over the first token's state, and the activation between them."""

    dense: str
    activation: str
    output: str


_DENSE_HEAD = Layers("classifier.dense", "tanh", "classifier.out_proj")
LAYERS = {
    "bert": Layers("bert.pooler.dense", "tanh", "classifier"),
    "camembert": _DENSE_HEAD,
    "distilbert": Layers("pre_classifier", "relu", "classifier"),
    "electra": Layers("classifier.dense", "gelu", "classifier.out_proj"),
    "mpnet": _DENSE_HEAD,
    "roberta": _DENSE_HEAD,
    "xlm-roberta": _DENSE_HEAD,
}
"""Layers of the classifiers of each architecture."""


@dataclass(frozen=True)
class Classifier:
    """Classifier with one label."""

    decides: ClassVar[tuple[str, ...]] = ("pooling", "dense", "bias")
    """Settings of the decoder that follow from it."""

    layers: Layers
    width: int

    def settings(self) -> dict[str, Any]:
        """Settings of the decoder with these layers."""
        return {"pooling": "first", "dense": (Dense(self.width, self.layers.activation),), "bias": True}

    def names(self) -> dict[str, str]:
        """Names of the tensors, by their names in the decoder."""
        layers = {"dense.0": self.layers.dense, "output": self.layers.output}
        return {f"{ours}.{kind}": f"{theirs}.{kind}" for ours, theirs in layers.items() for kind in KINDS}


def read_classifier(folder: str | Path) -> Classifier | None:
    """Returns the classifier of a folder or hub id whose model scores pairs; None for all other models."""
    path = sentences.file_of(folder, "config.json", rare=True)
    if path is None:
        return None
    about = storage.read_json(path, sentences.AGAIN)
    architectures, labels = about.get("architectures"), about.get("id2label")
    if not isinstance(architectures, list) or not any(str(name).endswith(CLASSIFIER) for name in architectures):
        return None
    count = len(labels) if isinstance(labels, dict) else about.get("num_labels")
    layers, width = LAYERS.get(str(about.get("model_type"))), about.get("hidden_size", about.get("dim"))
    return Classifier(layers, width) if count == 1 and layers and isinstance(width, int) else None


def cross_encoder(name: str, folder: str, classifier: Classifier) -> Ranker:
    """Builds the cross-encoder whose scores are the logits of transformers."""
    encoder = structure({"kind": "pretrained", "name": name}, EncoderConfig).settled()
    tokenizer = encoder.own_tokenizer()
    assert tokenizer is not None
    limit = _limit(encoder, folder)
    settings = {**classifier.settings(), "max_tokens": limit}
    decoder: Any = part_config("decoders", "cross")
    context, candidate = (TextInput(column=column, max_tokens=limit) for column in ("context", "response"))
    config = ModelConfig(context, encoder, {MAIN: Task(decoder(**settings), RankingOutput(candidate=candidate))})
    model = Ranker(config, {INPUT: tokenizer})
    model.start_from()
    model.head.load_state_dict(_tensors(name, encoder, classifier))
    return model.eval()


def _limit(encoder: EncoderConfig, folder: str) -> int:
    """Maximum number of tokens of a pair, from the positions of the network and the tokenizer's own limit."""
    path = sentences.file_of(folder, "tokenizer_config.json", rare=True)
    said = storage.read_json(path, sentences.AGAIN).get("model_max_length") if path else None
    limits = [encoder.longest(), int(said) if isinstance(said, int | float) else None]
    return min((limit for limit in limits if limit and limit < sentences.ENDLESS), default=sentences.ENDLESS)


def _tensors(name: str, encoder: EncoderConfig, classifier: Classifier) -> Mapping[str, Tensor]:
    """Reads the tensors of the two layers, by their names in the decoder."""
    folder = encoder.folder()
    paths = sorted(folder.glob("*.safetensors")) if folder else []
    tensors: dict[str, Tensor] = {}
    names = classifier.names()
    for path in paths:
        there = storage.tensor_shapes(path, sentences.AGAIN)
        if wanted := {ours: theirs for ours, theirs in names.items() if theirs in there}:
            read = storage.read_tensors(path, sentences.AGAIN, list(wanted.values()))
            tensors |= {ours: read[theirs].float() for ours, theirs in wanted.items()}
    if missing := [theirs for ours, theirs in names.items() if ours not in tensors]:
        raise TwofoldError(f"{name}: its weights lack {', '.join(missing)}; {ELSEWHERE}")
    return tensors
