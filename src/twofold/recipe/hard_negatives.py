"""Mined hard negatives, and a teacher's scores for distillation: written before a training, as rows of a file."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from twofold import storage
from twofold.data.candidates import read_candidates
from twofold.data.label_columns import warn_of_unread_columns
from twofold.data.ranking import AUTO, RankingReader, text_key
from twofold.decoders import Vectors
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.model.load import load_ranker
from twofold.outputs.ranking import Config as RankingOutput
from twofold.progress import bar
from twofold.recipe.build import draw_rows
from twofold.recipe.recipe import Mining, Recipe, Teacher

ROWS = 4096
"""Number of texts that are read between two updates of the progress bar; pairs are scored an eighth of it at a time."""
CONTEXTS, CORPUS = 256, 1 << 16
"""Number of contexts, and of texts of the corpus, that are scored with each other at a time."""
Values = dict[str, Any]
"""Row as a ranker learns from it: context, response, further right responses, negatives and scores."""


def prepared(recipe: Recipe, path: Path) -> Recipe:
    """Returns the recipe that learns from rows with mined negatives and a teacher's scores, written to `path`."""
    if not path.exists():
        _prepare_rows(recipe, path)
    return replace(recipe, data=replace(recipe.data, train=str(path), form=AUTO))


def _prepare_rows(recipe: Recipe, path: Path) -> None:
    """Writes the rows to a jsonl file of the same columns; rows that are not learned from are written as they are."""
    output = cast(RankingOutput, next(iter(recipe.tasks.values())).output)
    reader, seed = output.reader(recipe.input, recipe.data.form), recipe.train.seed
    rows = list(reader.read_as_given(recipe.data.train))
    made = [dict(reader.row(row).values) for row in rows]
    warn_of_unread_columns(rows, reader.columns)  # such columns are not written
    learned, _ = draw_rows(recipe.data, len(made), seed)
    if recipe.mine:
        _mine(made, learned, recipe.mine, seed, path.parent)
    if recipe.teacher:
        _teach(made, learned, recipe.teacher, seed)
    lines = [
        json.dumps(_as_given(reader, row.values, values), ensure_ascii=False)
        for row, values in zip(rows, made, strict=True)
    ]
    storage.write_bytes(path, "".join(f"{line}\n" for line in lines).encode())


def _as_given(reader: RankingReader, given: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Returns a row under the columns it came from, so that the file is read like the original."""
    row = {name: given[name] for name in (reader.context, reader.preface) if name and name in given}
    right = _right_texts(values)
    row[reader.response] = right if len(right) > 1 else right[0]
    return row | {name: values[name] for name in ("negatives", "scores") if name in values}


def _right_texts(values: Values) -> list[str]:
    """Right responses of a row."""
    return [values["response"], *values.get("others", ())]


def _context_key(values: Values) -> int:
    return text_key(" \n".join(values["context"]))


def _mine(rows: list[Values], learned: NDArray[np.int64], settings: Mining, seed: int, folder: Path) -> None:
    model = load_ranker(settings.model)
    if model.joined or model.head.several:
        what = "a cross-encoder cannot search" if model.joined else "keeps several vectors of a text"
        raise TwofoldError(f"mine.model={settings.model}: {what}; give a bi- or poly-encoder")
    responses = [text for row in rows for text in _right_texts(row)]
    given = [candidate.text for candidate in read_candidates(settings.corpus)] if settings.corpus else []
    texts = list(dict.fromkeys([*responses, *given]))  # the right ones too: their vectors tell near-duplicates
    place = {text: number for number, text in enumerate(texts)}
    usable = np.full(len(texts), not settings.corpus)
    usable[[place[text] for text in given]] = True
    known = _known(rows, texts)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        corpus = _Corpus(_on_disk(Path(temporary) / "corpus", model, texts), usable, settings)
        with bar("mining negatives", len(learned)) as report:
            for start in range(0, len(learned), CONTEXTS):
                numbers = learned[start : start + CONTEXTS]
                block = [rows[number] for number in numbers]
                right = [[place[text] for text in _right_texts(row)] for row in block]
                hardest = corpus.hardest(model, block, right, [known[_context_key(row)] for row in block])
                for number, row, wrong in zip(numbers, block, hardest, strict=True):
                    draw = np.random.default_rng([seed, number])
                    chosen = np.sort(draw.permutation(len(wrong))[: settings.count])
                    row.pop("scores", None)
                    row["negatives"] = [texts[text] for text in wrong[chosen]]
                report(start + len(block))


def _known(rows: Sequence[Values], texts: Sequence[str]) -> dict[int, set[int]]:
    """Maps each context to the numbers of the texts that are right for it, however often it stands in the file."""
    twins: dict[int, list[int]] = defaultdict(list)  # texts that differ only in case, blanks or Unicode form
    for number, text in enumerate(texts):
        twins[text_key(text)].append(number)
    known: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        known[_context_key(row)].update(number for text in _right_texts(row) for number in twins[text_key(text)])
    return known


@dataclass(frozen=True)
class _Corpus:
    """Corpus of texts that negatives are mined from."""

    vectors: NDArray[np.float32]
    usable: NDArray[np.bool_]
    """True for texts that may be mined at all."""
    settings: Mining

    def hardest(
        self, model: Ranker, rows: Sequence[Values], right: Sequence[list[int]], known: Sequence[set[int]]
    ) -> list[NDArray[np.int64]]:
        """Returns the numbers of the wrong texts that score best for each row, a part of the corpus at a time.

        right: numbers of the right responses of each row
        known: numbers of all texts that are right for its context
        """
        contexts = model.embed_contexts([row["context"] for row in rows])
        owners, responses = _pairs(right)
        right_vectors = F.normalize(torch.from_numpy(self.vectors[responses.numpy()]))
        known_rows, known_texts = _pairs(known)
        wanted = self.settings.skip + self.settings.depth
        best, numbers = torch.empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.long)
        for start in range(0, len(self.vectors), CORPUS):
            part = torch.from_numpy(np.array(self.vectors[start : start + CORPUS]))
            with torch.no_grad():
                scores: Tensor = model.head.score(contexts, Vectors(part[:, None].to(model.device))).cpu()
            scores[:, torch.from_numpy(~self.usable[start : start + CORPUS])] = -torch.inf
            near, near_texts = (right_vectors @ F.normalize(part).T > self.settings.similar).nonzero(as_tuple=True)
            scores[owners[near], near_texts] = -torch.inf
            here = (start <= known_texts) & (known_texts < start + CORPUS)
            scores[known_rows[here], known_texts[here] - start] = -torch.inf
            top = scores.topk(min(wanted, scores.shape[1]))
            best, numbers = torch.cat([best, top.values], 1), torch.cat([numbers, top.indices + start], 1)
            kept = best.topk(min(wanted, best.shape[1]))
            best, numbers = kept.values, numbers.gather(1, kept.indices)
        wrong = [row[score > -torch.inf].numpy() for row, score in zip(numbers, best, strict=True)]
        return [row[self.settings.skip :] for row in wrong]


def _pairs(numbers: Sequence[Iterable[int]]) -> tuple[Tensor, Tensor]:
    """Returns two tensors: the row of each number, and the numbers of each row in order."""
    pairs = [(row, number) for row, members in enumerate(numbers) for number in sorted(members)]
    rows, members = torch.tensor(pairs, dtype=torch.long).view(-1, 2).unbind(1)
    return rows, members


def _teach(rows: list[Values], learned: NDArray[np.int64], settings: Teacher, seed: int) -> None:
    model = load_ranker(settings.model)
    responses = list(dict.fromkeys(text for row in rows for text in _right_texts(row)))
    for number in learned:
        row = rows[number]
        if not row["negatives"]:
            right = _right_texts(row)
            draw = np.random.default_rng([seed, number]).permutation(len(responses))[: settings.negatives + len(right)]
            wrong = [responses[text] for text in draw if responses[text] not in right]
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
    """Writes the vectors of all texts to a file, and maps it into memory."""
    with path.open("wb") as file, bar("reading candidates", len(texts)) as report:
        for start in range(0, len(texts), ROWS):
            part = model.embed_candidates(texts[start : start + ROWS]).single.cpu().numpy()
            part.astype(np.float32).tofile(file)
            report(start + len(part))
    return np.memmap(path, np.float32, "r").reshape(len(texts), -1)
