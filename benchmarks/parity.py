"""Parity: a thousand texts of each kind through every engine and every export, against torch in float32.

The kinds are those of `tests/strange.py`: empty, one letter, emoji, 10,000 words, Korean, control characters, ragged
mixes, and texts at the limit of tokens. all-MiniLM-L6-v2 reads them all; small models of the tests stand for what has
no packaged weights: rankers by several vectors, labels, tags and trees, and text to text for CTranslate2.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from _common import processor_flags, save
from numpy.typing import NDArray

import twofold
from tests import made, strange
from tests.conftest import decoder, encoder
from tests.rankers import small_ranker
from tests.runtime.test_ctranslate2 import trained
from tests.test_pairs import fitting_pair
from twofold import precision, runtime
from twofold.config import kinds
from twofold.data.named_models import DEFAULT
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.decoders import RankingDecoderConfig
from twofold.errors import TwofoldError
from twofold.exporting import export
from twofold.exporting.card import output_scale
from twofold.exporting.parity import agreement, difference, scores_of
from twofold.exporting.read import read
from twofold.model import Model, Ranker
from twofold.model.representation import CANDIDATES

COUNT, ALONE, RAGGED, RANKED = 1000, 100, 32, 50
"""Texts of a kind; how many of them alone; rows of a batch in their order; contexts that rank all candidates."""
LIMIT, SMALL_LIMIT = "at the limit", 20
Vectors = NDArray[np.float32]
Read = Callable[[list[str]], Vectors]


def texts_of(kind: str, count: int, model: Ranker) -> list[str]:
    """Texts of one kind."""
    if kind != LIMIT:
        return strange.texts(kind, count)
    tokenizer = model.candidates.tokenizer
    assert tokenizer is not None
    return strange.at_limit(tokenizer, model.candidates.limit - len(tokenizer.frame), count)


def batched(values: Sequence[Any], size: int) -> list[list[Any]]:
    """Slices of values in their order."""
    return [list(values[start : start + size]) for start in range(0, len(values), size)]


def ways_of(model: Ranker) -> dict[str, Read]:
    """Ways of reading candidates: all at once, in batches of unlike lengths, and alone."""
    side = model.side(CANDIDATES)

    @torch.no_grad()
    def ragged(texts: list[str]) -> Vectors:
        items = side.input.items_of(texts)
        parts = [side.represent(part, None, model.device).single for part in batched(items, RAGGED)]
        return torch.cat(parts).float().numpy()

    def alone(texts: list[str]) -> Vectors:
        return np.stack([model.encode(text) for text in texts[:ALONE]])

    return {"together": model.encode, "ragged": ragged, "alone": alone}


def exported(model: Ranker, to: str, folder: Path) -> Read:
    """Reads candidates by an exported folder, with its own code and engine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(model, folder, to)
    if to == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(folder), device="cpu")
        scale = np.float32(output_scale(model))
        return lambda texts: np.asarray(theirs.encode_document(texts, show_progress_bar=False)) * scale
    run, about = graphs_of(folder, to), about_of(folder)["candidate"]
    return lambda texts: np.concatenate(
        [run("candidate", read(about, part, folder))["vectors"] for part in batched(texts, RAGGED)]
    )


def about_of(folder: Path) -> dict[str, Any]:
    """How the graphs of a folder read their inputs."""
    graphs = json.loads((folder / "config.json").read_text(encoding="utf-8"))["graphs"]
    return {name: graph["input"] for name, graph in graphs.items() if "input" in graph}


def graphs_of(folder: Path, to: str) -> Callable[[str, Any], dict[str, Any]]:
    """Computes a graph of an exported folder by its name."""
    graphs = json.loads((folder / "config.json").read_text(encoding="utf-8"))["graphs"]
    engine = runtime.engine_named({"onnx": "onnxruntime"}.get(to, to), "float32")
    assert engine is not None
    runs = {name: engine.load(folder / graph["file"], "float32", 1) for name, graph in graphs.items()}
    names = {name: [output["name"] for output in graph["outputs"]] for name, graph in graphs.items()}
    return lambda name, arrays: dict(zip(names[name], runs[name](arrays), strict=True))


def compared(ours: Vectors, theirs: Vectors) -> dict[str, float]:
    """Largest difference as a share of the largest value or of one, and the cosines."""
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosines = (ours * theirs).sum(1) / lengths
    return {
        "largest_difference": difference(ours, theirs),
        "mean_cosine": round(float(cosines.mean()), 7),
        "least_cosine": round(float(cosines.min()), 7),
    }


def whole_model(count: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of all-MiniLM-L6-v2: each kind in each way of each engine, and in each export."""
    model = twofold.load(DEFAULT, runtime="torch", precision="float32")
    assert isinstance(model, Ranker)
    exports = {to: exported(model, to, folder / to) for to in ("onnx", "openvino", "sentence-transformers")}
    for kind in (*strange.KINDS, LIMIT):
        texts = texts_of(kind, count, model)
        runtime.install(model, "torch", "float32")
        expected = {name: way(texts) for name, way in ways_of(model).items()}
        for engine, how in engines():
            runtime.install(model, engine, how)
            for name, way in ways_of(model).items():
                about = {"kind": kind, "texts": len(expected[name]), "by": f"{engine} {how}", "way": name}
                yield {**about, **compared(way(texts), expected[name])}
        for to, reads in exports.items():
            about = {"kind": kind, "texts": count, "by": f"export {to}", "way": "ragged"}
            yield {**about, **compared(reads(texts), expected["together"])}


def engines() -> list[tuple[str, str]]:
    """Engines and precisions that are compared with torch on this machine."""
    found = [("openvino", "float32"), ("onnxruntime", "float32")]
    return [*found, ("openvino", "bfloat16")] if precision.is_fast() else found


def mixed(count: int) -> list[str]:
    """Texts of all kinds, as many of each; the longest are fewer."""
    few = count // len(strange.KINDS)
    return [text for kind in strange.KINDS for text in strange.texts(kind, few if "10,000" not in kind else few // 10)]


def small_rankers(tokenizer: TextTokenizer, count: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of each ranking decoder: scores of some contexts for all candidates, by an engine and by an export."""
    texts = mixed(count)
    contexts = [text for text in strange.texts("ragged", 2 * RANKED, seed=1) if text.strip()][:RANKED]
    for kind in kinds("decoders"):
        if not isinstance(decoder(kind), RankingDecoderConfig):
            continue
        how: dict[str, Any] = {"max_context": SMALL_LIMIT, "max_candidate": SMALL_LIMIT, "context": {"keep": "head"}}
        model = small_ranker(tokenizer, encoder("transformer"), decoder(kind), **how).eval()
        runtime.install(model, "torch", "float32")
        expected = model.similarity(contexts, texts)
        export(model, folder / kind, "onnx")
        run, about = graphs_of(folder / kind, "onnx"), about_of(folder / kind)
        ways: dict[str, Callable[[], NDArray[Any]]] = {
            f"{engine} float32": partial(by_engine, model, engine, contexts, texts)
            for engine, precisely in engines()
            if precisely == "float32"
        }
        ways["export onnx"] = partial(by_export, model, run, about, folder / kind, contexts, texts)
        for name, way in ways.items():
            scores = way().reshape(expected.shape)
            found = {"largest_difference": difference(scores, expected), "agreement": agreement(scores, expected)}
            yield {"kind": f"scores of {kind}", "texts": len(texts), "by": name, **found}


def by_engine(model: Ranker, engine: str, contexts: list[str], texts: list[str]) -> NDArray[Any]:
    """Scores by an engine."""
    runtime.install(model, engine, "float32")
    return model.similarity(contexts, texts)


def by_export(
    model: Ranker, run: Any, about: dict[str, Any], folder: Path, contexts: list[str], texts: list[str]
) -> NDArray[Any]:
    """Scores by the graphs of an exported folder."""
    if not model.joined:
        sides = {"context": contexts, "candidate": texts}
        return scores_of(run, lambda side: read(about[side], sides[side], folder), None, True)
    pairs = [(context, text) for context in contexts for text in texts]
    return np.concatenate([run("pair", read(about["pair"], part, folder))["scores"] for part in batched(pairs, 512)])


def translated(model: Model, texts: Sequence[str]) -> list[str]:
    """The text written for each text, or the reason why it is refused."""
    answers = []
    for text in texts:
        try:
            answers.append(str(model.predict([text])[0].output))
        except TwofoldError as error:
            answers.append(str(error))
    return answers


def translation(tokenizer: TextTokenizer, count: int) -> Iterator[dict[str, Any]]:
    """Rows of a small Transformer that has learned to read numbers, by CTranslate2."""
    model = trained(tokenizer)
    for kind in strange.KINDS:
        texts = strange.texts(kind, count if "10,000" not in kind else count // 10)
        runtime.install(model, "torch", "float32")
        expected = translated(model, texts)
        runtime.install(model, "ctranslate2", "float32")
        equal = np.mean([ours == theirs for ours, theirs in zip(translated(model, texts), expected, strict=True)])
        refused = sum("nothing to read" in answer for answer in expected)
        about = {"kind": kind, "texts": len(texts), "by": "ctranslate2 float32", "way": "greedy"}
        yield {**about, "agreement": float(equal), "refused_by_both": refused}


def others(tokenizer: TextTokenizer) -> Iterator[dict[str, Any]]:
    """Rows of the certificates of small models that do not rank, on the samples of `twofold export`."""
    for kind in kinds("decoders"):
        if isinstance(decoder(kind), RankingDecoderConfig):
            continue
        model = fitting_pair(tokenizer, decoder(kind)).eval()
        for to in ("onnx", "openvino"):
            with TemporaryDirectory() as folder:
                try:
                    done = export(model, Path(folder) / "out", to).parity
                except TwofoldError as error:
                    yield {"kind": f"decoder {kind}", "by": f"export {to}", "refused": str(error)}
                    continue
            found = {"largest_difference": done.largest_difference, "agreement": done.agreement}
            yield {"kind": f"decoder {kind}", "texts": done.samples, "by": f"export {to}", **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=COUNT, help="texts of each kind")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # that long texts are cut
    torch.set_num_threads(1)
    pairs = made.numbers(300, seed=1) + made.reverse(100, seed=1)
    tokenizer = TextTokenizer.train([text for pair in pairs for text in pair.values()], TokenizerConfig(size=100))
    rows = []
    with TemporaryDirectory() as folder:
        for part in (
            whole_model(options.texts, Path(folder)),
            small_rankers(tokenizer, options.texts, Path(folder)),
            translation(tokenizer, options.texts),
            others(tokenizer),
        ):
            for row in part:
                print(row, flush=True)
                rows.append(row)
    save("parity", {"processor": processor_flags(), "rows": rows, "worst": worst(rows)})


def worst(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The worst of each engine and export over all kinds."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        here = found.setdefault(row["by"], {})
        for name, pick in (
            ("largest_difference", max),
            ("mean_cosine", min),
            ("least_cosine", min),
            ("agreement", min),
        ):
            if name in row:
                here[name] = pick(here.get(name, row[name]), row[name])
    return found


if __name__ == "__main__":
    main()
