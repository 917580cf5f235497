"""Mined hard negatives, and a teacher's scores for distillation: made before a training, as rows of a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from twofold import storage
from twofold.data.candidates import read_candidates
from twofold.data.files import Row, Sources
from twofold.data.ranking import RankingReader, text_key, warn_of_unread_rows
from twofold.decoders import Contexts
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.model.load import load_ranker
from twofold.progress import bar

ROWS = 4096
"""How many texts are read, or pairs scored, between two looks at the progress."""
CONTEXTS, CORPUS = 256, 1 << 16
"""How many contexts meet how many texts of the corpus at a time."""


@dataclass(frozen=True)
class Mining:
    """Wrong candidates that a model takes for right ones."""

    model: str
    """A ranker's folder, a hub id, or `default`."""
    count: int = 4
    """How many for each context."""
    depth: int = 50
    """They are drawn by seed from the best so many."""
    skip: int = 0
    """So many of the very best are left out: they may be right."""
    similar: float = 0.95
    """A text whose cosine with the right response is above this is left out as a near-duplicate."""
    corpus: str | None = None
    """A file of texts to look among; the responses of the training file unless given."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.depth < self.count or self.skip < 0 or not 0 < self.similar <= 1:
            raise ValueError("count must be at least 1, depth at least count, skip at least 0, similar in (0, 1]")


@dataclass(frozen=True)
class Teacher:
    """A ranker whose scores another follows."""

    model: str
    """A ranker's folder; most often a cross-encoder's."""
    negatives: int = 4
    """Where a row has no wrong candidates of its own: how many responses of others it gets, drawn by seed."""

    def __post_init__(self) -> None:
        if self.negatives < 1:
            raise ValueError(f"negatives must be at least 1, not {self.negatives}")


def prepare_rows(
    reader: RankingReader,
    where: Sources,
    mine: Mining | None,
    teacher: Teacher | None,
    seed: int,
    path: Path,
    learned: Callable[[int], NDArray[np.int64]] = np.arange,
) -> None:
    """Write the rows of a file with mined negatives and a teacher's scores to a jsonl file of the same columns.

    `learned` tells the numbers of the rows that are learned from; the others are written as they are.
    """
    rows = list(reader.read_as_given(where))
    made = [dict(reader.row(row).values) for row in rows]
    warn_of_unread_rows(reader, rows)  # such columns are not written
    if mine:
        _mine(made, learned(len(made)), mine, seed, path.parent)
    if teacher:
        _teach(made, learned(len(made)), teacher, seed)
    lines = [
        json.dumps(_as_given(reader, row, values), ensure_ascii=False) for row, values in zip(rows, made, strict=True)
    ]
    storage.write_bytes(path, "".join(f"{line}\n" for line in lines).encode())


def _as_given(reader: RankingReader, row: Row, values: dict[str, Any]) -> dict[str, Any]:
    """A row under the columns it came from, so that whoever reads the file reads it as before."""
    columns = [name for name in (reader.context, reader.preface) if name and name in row.values]
    given = {name: row.values[name] for name in columns}
    right = _right_texts(values)
    return {
        **given,
        reader.response: right if len(right) > 1 else right[0],
        **{k: values[k] for k in ("negatives", "scores") if k in values},
    }


def _right_texts(values: dict[str, Any]) -> list[str]:
    """All right texts of a row."""
    return [values["response"], *values.get("others", ())]


def _mine(rows: list[dict[str, Any]], learned: NDArray[np.int64], settings: Mining, seed: int, folder: Path) -> None:
    model = load_ranker(settings.model)
    if model.joined:
        raise TwofoldError(f"mine.model={settings.model}: a cross-encoder cannot search; give a bi- or poly-encoder")
    responses = [text for row in rows for text in _right_texts(row)]
    given = [one.text for one in read_candidates(settings.corpus)] if settings.corpus else []
    corpus = list(dict.fromkeys([*responses, *given]))  # the right ones too: their vectors tell near-duplicates
    place = {text: number for number, text in enumerate(corpus)}
    usable = np.array([not settings.corpus] * len(corpus))
    usable[[place[text] for text in given]] = True
    twins: dict[int, list[int]] = {}  # texts that differ only in case, blanks or Unicode form
    for number, text in enumerate(corpus):
        twins.setdefault(text_key(text), []).append(number)
    known: dict[int, set[int]] = {}  # texts that are right for a context, however often it stands in the file
    for row in rows:
        known.setdefault(text_key(" \n".join(row["context"])), set()).update(
            number for text in _right_texts(row) for number in twins[text_key(text)]
        )
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        vectors = _on_disk(Path(temporary) / "corpus", model, corpus)
        with bar("mining negatives", len(learned)) as report:
            for start in range(0, len(learned), CONTEXTS):
                numbers = learned[start : start + CONTEXTS]
                block = [rows[number] for number in numbers]
                contexts = [row["context"] for row in block]
                owners = torch.tensor([number for number, row in enumerate(block) for _ in _right_texts(row)])
                right = torch.from_numpy(vectors[[place[text] for row in block for text in _right_texts(row)]])
                left_out = [sorted(known[text_key(" \n".join(context))]) for context in contexts]
                may = _Wrong(usable, right, owners, settings.similar, left_out, settings.skip + settings.depth)
                best = may.best(model, contexts, vectors)
                for number, row, found in zip(numbers, block, best, strict=True):
                    wrong = found[settings.skip :]
                    draw = np.random.default_rng([seed, number])
                    chosen = np.sort(draw.permutation(len(wrong))[: settings.count])
                    row.pop("scores", None)
                    row["negatives"] = [corpus[wrong[one]] for one in chosen]
                report(start + len(block))


@dataclass(frozen=True)
class _Wrong:
    """What may be mined for some contexts."""

    usable: NDArray[np.bool_]
    """Which texts of the corpus may be mined at all."""
    right: Tensor
    """(right texts, width): the vectors of the right responses."""
    owners: Tensor
    """(right texts): the number of the context each belongs to."""
    similar: float
    left_out: list[list[int]]
    """For each context the numbers of the texts that are right for it."""
    wanted: int

    def best(
        self, model: Ranker, contexts: Sequence[list[str]], vectors: NDArray[np.float32]
    ) -> list[NDArray[np.int64]]:
        """For each context the numbers of the wrong texts that score best, a part of the corpus at a time."""
        read: Contexts = model.embed_contexts(contexts)
        scores = torch.empty(len(contexts), 0)
        numbers = torch.empty(len(contexts), 0, dtype=torch.long)
        rows = torch.tensor([row for row, known in enumerate(self.left_out) for _ in known])
        columns = torch.tensor([one for known in self.left_out for one in known])
        for start in range(0, len(vectors), CORPUS):
            part = torch.from_numpy(np.array(vectors[start : start + CORPUS]))
            with torch.no_grad():
                found: Tensor = model.head.score(read, part.to(model.device)).cpu()
            found[:, torch.from_numpy(~self.usable[start : start + CORPUS])] = -torch.inf
            near, columns_near = (F.normalize(self.right) @ F.normalize(part).T > self.similar).nonzero(as_tuple=True)
            found[self.owners[near], columns_near] = -torch.inf
            here = (start <= columns) & (columns < start + CORPUS)
            found[rows[here], columns[here] - start] = -torch.inf
            top = found.topk(min(self.wanted, found.shape[1]))
            scores, numbers = torch.cat([scores, top.values], 1), torch.cat([numbers, top.indices + start], 1)
            kept = scores.topk(min(self.wanted, scores.shape[1]))
            scores, numbers = kept.values, numbers.gather(1, kept.indices)
        return [row[score > -torch.inf].numpy() for row, score in zip(numbers, scores, strict=True)]


def _teach(rows: list[dict[str, Any]], learned: NDArray[np.int64], settings: Teacher, seed: int) -> None:
    model = load_ranker(settings.model)
    responses = list(dict.fromkeys(text for row in rows for text in _right_texts(row)))
    for number in learned:
        row = rows[number]
        if not row["negatives"]:
            right = _right_texts(row)
            draw = np.random.default_rng([seed, number]).permutation(len(responses))[: settings.negatives + len(right)]
            wrong = [responses[one] for one in draw if responses[one] not in right]
            row["negatives"] = wrong[: settings.negatives]
    with bar("asking the teacher", len(learned)) as report:
        for start in range(0, len(learned), ROWS // 8):
            block = [rows[number] for number in learned[start : start + ROWS // 8]]
            pairs = [(row["context"], text) for row in block for text in (*_right_texts(row), *row["negatives"])]
            scores = iter(model.score_pairs(pairs).tolist())
            for row in block:
                row["scores"] = [next(scores) for _ in (*_right_texts(row), *row["negatives"])]
            report(start + len(block))


def _on_disk(path: Path, model: Ranker, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of all texts in a file, of which only what is touched is in memory."""
    vectors: NDArray[np.float32] | None = None
    with bar("reading candidates", len(texts)) as report:
        for start in range(0, len(texts), ROWS):
            part = model.embed_candidates(texts[start : start + ROWS]).cpu().numpy()
            if vectors is None:
                vectors = np.memmap(path, np.float32, "w+", shape=(len(texts), part.shape[1]))
            vectors[start : start + len(part)] = part
            report(start + len(part))
    assert vectors is not None
    return vectors
