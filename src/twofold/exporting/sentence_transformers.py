"""sentence-transformers: bi-encoders and cross-encoders over backbones, as folders that it loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.backbones import clearly
from twofold.errors import TwofoldError
from twofold.exporting.card import output_scale
from twofold.exporting.graphs import values_of
from twofold.exporting.job import Job
from twofold.exporting.parity import Parity, agreement, difference
from twofold.inputs.text import TextInput
from twofold.layers.pooling import SentenceModules
from twofold.model import Ranker
from twofold.model.sentence_misfits import POOLINGS
from twofold.types import Encoder

NEEDS = ("sentence_transformers",)
EXTRA = "pip install 'sentence-transformers>=6'"
MAY_BE_INT8 = False
REMEDY = "export it --to onnx"
ELSEWHERE = {pooling: name for name, pooling in POOLINGS.items()}
"""Their names of poolings."""
PROMPTS = ("query", "document")
SENTENCES, CROSS = (
    """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")
queries = model.encode_query(["how do I list a folder?"])
documents = model.encode_document(["ls shows a folder", "df -h shows free space"])
print(model.similarity(queries, documents))
""",
    """\
from sentence_transformers import CrossEncoder

model = CrossEncoder(".")
print(model.predict([("how do I list a folder?", "ls shows a folder")]))
""",
)


def write(job: Job, folder: Path) -> Parity:
    """Writes the modules of a ranker; returns how the folder's vectors and scores compare with the ranker's."""
    model = job.model
    if not isinstance(model, Ranker):
        raise TwofoldError(f"the model ranks no candidates, as sentence-transformers does; {REMEDY}")
    try:
        layers, sides = model.head.sentence_modules(), [model.contexts, model.candidates]
    except TwofoldError as error:
        raise TwofoldError(f"the decoder '{model.kind}': {error}") from None
    if any(side.tokenizer is None for side in sides):
        nouns = "s and ".join(dict.fromkeys(side.config.noun for side in sides))
        raise TwofoldError(f"it reads {nouns}s, and sentence-transformers is written for rankers of texts; {REMEDY}")
    texts = cast(list[TextInput], sides)
    beyond = list(_beyond_limits(model, texts))
    for note in beyond:
        warnings.warn(f"sentence-transformers: {note}", stacklevel=4)
    notes = (*beyond, *_factor(model))
    with clearly("--to sentence-transformers", REMEDY), TemporaryDirectory() as made:
        _build(model, layers, texts, Path(made)).save(str(folder), create_model_card=False)
        known = Parity(job.format, version("sentence-transformers"), "float32", 0.0, 1.0, 0, notes=notes)
        return (_pairs_compared if model.joined else _vectors_compared)(model, folder, known).check()


def example(model: Ranker) -> str:
    """Code of the card."""
    return CROSS if model.joined else SENTENCES


def _beyond_limits(model: Ranker, texts: list[TextInput]) -> Iterator[str]:
    """Differences in how texts beyond the limits of tokens are cut."""
    limits = [text.limit for text in texts]
    if not model.joined and limits[0] != limits[1]:
        yield f"texts of both sides are read up to {max(limits)} tokens, and not up to {limits[0]} and {limits[1]}"
    if texts[0].text.keep == "tail":
        yield "of a context beyond the limit of tokens the beginning is read, not the end"


def _factor(model: Ranker) -> Iterator[str]:
    """Difference of the scores by a factor."""
    if not model.joined and (scale := output_scale(model)) != 1:
        yield f"scores are cosines, without the factor {scale:.4g} of the candidates, which changes no ranking"


def _build(model: Ranker, layers: SentenceModules, texts: list[TextInput], made: Path) -> Any:
    """Model of sentence-transformers with the weights of the ranker; `made` keeps files until it is saved."""
    library: Any = import_module("sentence_transformers")
    modules: Any = import_module("sentence_transformers.sentence_transformer.modules")
    limit = model.pair.limit if model.joined else max(text.limit for text in texts)
    networks = [_network(model, encoder, made / str(number), limit) for number, encoder in enumerate(model.encoders())]
    width = model.config.encoder.spec().width("states")
    pooling = modules.Pooling(width, ELSEWHERE[cast(Any, layers.pooling)])
    dense = [_dense(linear, activation) for linear, activation in layers.dense]
    if layers.scores is not None:
        scores = _dense(layers.scores, torch.nn.Identity(), module_output_name="scores")
        chain = [networks[0], pooling, *dense, scores]
        return library.CrossEncoder(modules=chain, activation_fn=torch.nn.Identity(), device="cpu", num_labels=1)
    first = networks[0]
    if len(networks) > 1:
        router: Any = import_module("sentence_transformers.base.modules").Router
        first = router.for_query_document([networks[0]], [networks[1]])
    chain = [first, pooling, *dense, *([modules.Normalize()] if layers.normalize else [])]
    prompts = {name: text.text.prompt for name, text in zip(PROMPTS, texts, strict=True)}
    similarity = "cosine" if layers.cosine else "dot"
    return library.SentenceTransformer(modules=chain, prompts=prompts, similarity_fn_name=similarity, device="cpu")


def _network(model: Ranker, encoder: Encoder, made: Path, limit: int) -> Any:
    """Their module of a backbone and its tokenizer."""
    modules: Any = import_module("sentence_transformers.base.modules")
    config = model.config.encoder
    if model.config.candidate_encoder is not None and encoder is not model.encoder:
        config = model.config.candidate_encoder
    config.write_backbone(encoder, model.tokenizer, limit, made)
    return modules.Transformer(str(made), max_seq_length=limit)


def _dense(linear: torch.nn.Linear, activation: torch.nn.Module, **names: str) -> Any:
    modules: Any = import_module("sentence_transformers.base.modules")
    bias = linear.bias is not None
    dense = modules.Dense(linear.in_features, linear.out_features, bias, activation, **names)
    dense.linear.load_state_dict(linear.state_dict())
    return dense


def _vectors_compared(model: Ranker, folder: Path, known: Parity) -> Parity:
    """Compares vectors, similarities and rankings of sample texts."""
    theirs = import_module("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    texts, scale = _texts(model), output_scale(model)
    ours = [model.embed_contexts(texts).single, model.embed_candidates(texts).single / scale]
    vectors = [theirs.encode_query(texts), theirs.encode_document(texts)]
    differences = [difference(mine.numpy(), other) for mine, other in zip(ours, vectors, strict=True)]
    scores = np.asarray(theirs.similarity(*vectors))
    expected = model.similarity(texts, texts) / scale
    return _found(known, [*differences, difference(scores, expected)], agreement(scores, expected), len(texts))


def _pairs_compared(model: Ranker, folder: Path, known: Parity) -> Parity:
    """Compares scores and rankings of pairs of sample texts."""
    theirs = import_module("sentence_transformers").CrossEncoder(str(folder), device="cpu")
    texts = _texts(model)
    pairs = [(first, second) for first in texts for second in texts]
    scores: NDArray[Any] = theirs.predict(pairs).reshape(len(texts), -1)
    expected = model.score_pairs(pairs).numpy().reshape(scores.shape)
    return _found(known, [difference(scores, expected)], agreement(scores, expected), len(pairs))


def _found(known: Parity, differences: list[float], alike: float, samples: int) -> Parity:
    return replace(known, largest_difference=max(differences), agreement=alike, samples=samples)


def _texts(model: Ranker) -> list[str]:
    """Sample texts that both sides, or pairs of them, read whole."""
    columns = [cast(TextInput, side).text for side in (model.contexts, model.candidates)]
    room = min(column.limit for column in columns) // (2 if model.joined else 1)
    return [
        text
        for text in values_of(model.contexts)
        if all(not (encoded := column.encode_texts([text])).cut and len(encoded.ids[0]) <= room for column in columns)
    ]
