"""Ranker that needs no torch: tokenizer → engine → numpy, from files that an earlier run with torch has written."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from twofold import __version__, storage
from twofold import precision as precisions
from twofold import runtime as runtimes
from twofold.config import structure
from twofold.data.batches import CHUNK_TOKENS, pad_arrays
from twofold.data.candidates import Candidate, Text
from twofold.data.named_models import MODELS, find_model
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.data.top_k import as_k, best, first_of_equal
from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.inputs import InputConfig
from twofold.inputs.text import TextInput
from twofold.precision import processor_flags, thread_count
from twofold.results import Hit, Hits
from twofold.runtime import engine_named
from twofold.runtime.store import GRAPH, engines_folder, mark_used, rankers_folder

FORMAT = 3
ABOUT, TOKENIZER = "ranker.json", "tokenizer.json"
CONTEXT, CANDIDATE = "context", "candidate"
REMEDY = "it is made anew"

Floats = NDArray[np.float32]
Run = Callable[[Mapping[str, NDArray[Any]]], list[NDArray[Any]]]


@dataclass(frozen=True)
class Side:
    """Input of contexts or candidates, and the graphs from its tokens to vectors."""

    input: TextInput
    encoder: Run
    head: Run
    passes: tuple[str, ...]
    """Tensors of the input that the head takes as well."""
    gives: tuple[str, ...]
    """Tensors of the encoder that the head takes."""

    def vectors(self, texts: Sequence[Any]) -> tuple[Floats, NDArray[np.bool_]]:
        """Encodes texts; vectors (texts, vectors, width), and the mask of those that are there."""
        items = self.input.items_of(texts)
        parts: list[tuple[list[int], Floats, NDArray[np.bool_]]] = []
        for numbers in self.input.groups(items, CHUNK_TOKENS):
            parts.append((numbers, *self.represent([items[number] for number in numbers])))
        most = max(vectors.shape[1] for _, vectors, _ in parts)
        whole = np.zeros((len(items), most, parts[0][1].shape[2]), np.float32)
        mask = np.zeros((len(items), most), bool)
        for numbers, vectors, there in parts:
            whole[numbers, : vectors.shape[1]], mask[numbers, : vectors.shape[1]] = vectors, there
        if not np.isfinite(whole).all():
            raise TwofoldError(f"the vectors are {NOT_NUMBERS}")
        return whole, mask

    def represent(self, items: Sequence[Ids]) -> tuple[Floats, NDArray[np.bool_]]:
        """Encodes texts, given as token ids, that are read together; as `vectors` does."""
        tokens, mask = pad_arrays(self.input.framed(items), self.input.vocabulary.pad)
        given: dict[str, NDArray[Any]] = {"tokens": tokens, "mask": mask}
        hidden = dict(zip(self.gives, self.encoder(given), strict=True))
        vectors, there = self.head({**hidden, **{name: given[name] for name in self.passes}})
        return vectors, there.astype(bool)


@dataclass(frozen=True)
class LightContexts:
    """Encoded contexts."""

    vectors: Floats
    """(contexts, vectors, width)"""
    there: NDArray[np.bool_]
    """(contexts, vectors), true for real vectors."""

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice) -> LightContexts:
        return LightContexts(self.vectors[rows], self.there[rows])

    @property
    def first(self) -> Floats:
        """Real vectors of the first context, (vectors, width)."""
        real: Floats = self.vectors[0][self.there[0]]
        return real


@dataclass(frozen=True)
class LightHead:
    """Score of a bi-encoder, poly-encoder or late interaction model."""

    softmax_scale: float
    """β of the score, see `RankingDecoder.softmax_scale`."""
    grouped: bool
    """True if each vector of a context is a group of its own, False if all are one group."""

    def bounding_vectors(self, context: LightContexts) -> Floats:
        """Vectors that bound the scores, (groups, vectors, width)."""
        return context.first[:, None] if self.grouped else context.first[None]

    def scores_of_stored(self, context: LightContexts, vectors: Floats) -> Floats:
        """Scores (candidates,) of candidates with one stored vector each, (candidates, width)."""
        return self.scores(vectors @ context.first.T)

    def scores(self, products: Floats) -> Floats:
        """Scores (candidates,) from the largest dot product with each vector of a context, (candidates, vectors)."""
        if self.grouped or products.shape[1] == 1:
            summed: Floats = products.sum(1)
            return summed
        logits = self.softmax_scale * products
        weights = np.exp(logits - logits.max(1, keepdims=True))
        scores: Floats = ((weights * products).sum(1) / weights.sum(1)).astype(np.float32)
        return scores


@dataclass(frozen=True)
class LightRanker:
    """Ranker of a bi-encoder, poly-encoder or late interaction model."""

    contexts: Side
    candidates: Side
    head: LightHead
    kind: str
    """Kind of the decoder."""
    model: str
    """Fingerprint of the model."""

    def fingerprint(self) -> str:
        """Hash of the model's weights, tokenizers and settings."""
        return self.model

    def check_context(self, context: Any) -> Text:
        """Checks a single context; an empty one is an error."""
        return self.contexts.input.accepted(context, "the context", filled=True)

    def embed_contexts(self, contexts: Sequence[Any]) -> LightContexts:
        """Encodes contexts."""
        return LightContexts(*self.contexts.vectors(contexts))

    def rank(self, context: Text, candidates: Sequence[Candidate], k: int = 10) -> Hits:
        """Ranks candidates for a context; equal scores keep the order of the candidates."""
        start = time.perf_counter()
        if not candidates:
            raise TwofoldError("there are no candidates to rank; give at least one")
        k, texts = as_k(k), [candidate.text for candidate in candidates]
        first = first_of_equal(texts)
        different = np.unique(first)
        places = np.searchsorted(different, first)
        scores = self.scores(self.check_context(context), [texts[number] for number in different])[places]
        hits = [Hit(texts[number], float(scores[number]), candidates[number].id) for number in best(scores, k)]
        return Hits(hits, True, (time.perf_counter() - start) * 1000)

    def scores(self, context: Text, texts: Sequence[str]) -> Floats:
        """Scores of texts for one context, (texts,)."""
        kept, mask = self.candidates.vectors(texts)
        products = np.einsum("vw,tcw->tvc", self.embed_contexts([context]).first, kept, optimize=True)
        return self.head.scores(np.where(mask[:, None], products, -np.inf).max(2))


def find_ranker(name: str, runtime: str, precision: str) -> LightRanker | None:
    """Opens the ranker of a model without torch; None if torch is needed, such as for its first use."""
    engine = engine_named(runtime, "float32") if runtime != "torch" else None
    folder = folder_for(name, runtime, precision)
    if engine is None or folder is None or not folder.is_dir():
        return None
    return open_ranker(folder, engine, thread_count())


def files_of(name: str) -> list[Path]:
    """Returns the files that determine a model, without reading them; empty for models that are not local folders."""
    try:
        place = find_model(name, verify=False) if name in MODELS else None
        folder = place.folder if place else Path(name)
        folder = folder / "model" if (folder / "model").is_dir() else folder
        return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    except (TwofoldError, OSError, ValueError):  # no such package, or a name that no folder can have
        return []


def folder_for(name: str, runtime: str, precision: str) -> Path | None:
    """Returns the folder of a model's files for this machine; None if the model is not a local folder."""
    files = files_of(name)
    if not files:
        return None
    # A file that was replaced by one of the same size and date has another time of change.
    stats = [(str(path.resolve()), it.st_size, it.st_mtime_ns, it.st_ctime_ns) for path in files if (it := path.stat())]
    chosen = [os.environ.get(variable) or "auto" for variable in (runtimes.VARIABLE, precisions.VARIABLE)]
    given = [default if value == "auto" else value for value, default in zip((runtime, precision), chosen, strict=True)]
    key = json.dumps([FORMAT, __version__, *given, processor_flags(), stats])
    return rankers_folder() / hashlib.sha256(key.encode()).hexdigest()[:40]


def open_ranker(folder: Path, engine: ModuleType, threads: int) -> LightRanker | None:
    """Opens a ranker from its files; None if there are none, or if they are damaged or of another version."""
    path = folder / ABOUT
    if not path.is_file():
        return None
    try:
        about = storage.read_json(path, REMEDY)
        storage.check_content(about, path, REMEDY)
        if about["version"] != engine.version():
            return None
        if any(storage.sha256(_place(folder, file)) != sha256 for file, sha256 in about["sha256"].items()):
            return None
        tokenizer = TextTokenizer.load(folder / TOKENIZER)
        sides = [
            _side(about[side], engine, folder, about["precision"], tokenizer, threads) for side in (CONTEXT, CANDIDATE)
        ]
        head = LightHead(about["softmax_scale"], about["grouped"])
        return LightRanker(sides[0], sides[1], head, about["kind"], about["fingerprint"])
    except (TwofoldError, OSError, KeyError, TypeError, RuntimeError, ValueError):
        return None


_RUNS: dict[tuple[str, int], Run] = {}


def _side(
    about: Mapping[str, Any], engine: ModuleType, folder: Path, precision: str, tokenizer: TextTokenizer, threads: int
) -> Side:
    settings = structure(about["input"], InputConfig, "ranker.json")
    if not settings.without_torch:
        raise TwofoldError("the input needs torch")

    def opened(file: str, precision: str) -> Run:
        path = _place(folder, file)
        key = (str(path), threads)
        if key not in _RUNS:
            mark_used(path.parent)
            _RUNS[key] = engine.load(path, precision, threads)
        return _RUNS[key]

    encoder, head = opened(about["encoder"], precision), opened(about["head"], "float32")
    inner = about["takes"]

    def encode(given: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        return encoder({inner[name]: value for name, value in given.items() if name in inner})

    return Side(cast(TextInput, settings.build(tokenizer)), encode, head, tuple(about["passes"]), tuple(about["gives"]))


def _place(folder: Path, file: str) -> Path:
    """Returns a file of the ranker, or the graph of an engine that it shares: `engines/NAME`."""
    name = Path(file).name
    return engines_folder() / name / GRAPH if file.startswith("engines/") else folder / name
