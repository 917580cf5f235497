"""docs/glossary.md has every term of the project's vocabulary, and each place in the code that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import twofold

DOCS = Path(__file__).parents[1] / "docs"
SOURCE = Path(twofold.__file__).parent
TERMS = """
encoder, decoder, bi-encoder, poly-encoder, cross-encoder, pooling, in-batch negatives, hard negatives,
gradient caching, distillation, two towers, late interaction, cascade, re-ranking, top-k, certificate, exact search,
approximate search, embedding, token, sub-word, positional encoding, multi-head attention, self-attention,
cross-attention, padding mask, look-ahead mask, causal mask, teacher forcing, scheduled sampling, label smoothing,
greedy search, beam search, length penalty, layer normalization, batch normalization, residual connection,
skip connection, transposed convolution, feature map, patch, image, masked language model, next-utterance prediction,
denoising, fine-tuning, freezing, gradual unfreezing, layer-wise learning-rate decay, learning-rate multiplier,
exponential moving average, catastrophic forgetting, entity span, BIO, biaffine parser, maximum spanning tree,
validation split, checkpoint, epoch, step
"""
"""The project's vocabulary: the terms that a reader of the literature searches for."""
KINDS_OF_ENCODING = ("sinusoidal", "learned", "rotary")
terms = [term.strip() for term in TERMS.replace("\n", " ").split(",")]


@cache
def entries() -> dict[str, tuple[str, str, str, str]]:
    """Korean term, meaning, file and name of each entry, by its term."""
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| `([\w/.]+)` · `([\w.]+)` \|$", text, re.M)
    assert len(rows) == len(re.findall(r"^\| (?!term|---)", text, re.M))
    assert len({term for term, *_ in rows}) == len(rows)
    return {term: (korean, meaning, file, name) for term, korean, meaning, file, name in rows}


def names_in(node: ast.AST) -> Iterator[str]:
    """Names that a module or a class defines: classes, functions, settings and attributes of `self`."""
    for inner in ast.walk(node):
        match inner:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=target) | ast.Assign(targets=[*_, target]):
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                for place in names:
                    yield place.attr if isinstance(place, ast.Attribute) else ast.unparse(place)


@pytest.mark.parametrize("term", [*terms, *(f"{kind} positional encoding" for kind in KINDS_OF_ENCODING)])
def test_the_glossary_has_the_term_with_its_korean(term: str) -> None:
    korean, meaning, _, _ = entries()[term]
    assert re.search("[가-힣]", korean)
    assert meaning.endswith(".")


def test_one_korean_spelling_for_each_term() -> None:
    korean = [entry[0] for entry in entries().values()]
    assert len(set(korean)) == len(korean)


@pytest.mark.parametrize("term", entries())
def test_the_place_in_the_code_exists(term: str) -> None:
    _, _, file, name = entries()[term]
    node: ast.AST = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        assert part in set(names_in(node)), f"{file} does not define {name}"
        classes = (inner for inner in ast.walk(node) if isinstance(inner, ast.ClassDef) and inner.name == part)
        node = next(classes, node)


@pytest.mark.parametrize("term", [*terms, *KINDS_OF_ENCODING, "EMA"])
def test_the_docs_use_the_term(term: str) -> None:
    pages = [page for page in DOCS.glob("*.md") if page.name not in ("glossary.md", "settings.md")]
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    words = r"\s+".join(map(re.escape, term.split()))
    assert re.search(rf"\b{words}(s|es)?\b", text, re.I), f"no page of docs/ has '{term}'"
