"""Tree output: dependency trees, with the head of each word and the relation to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import pad_ids
from twofold.data.columns import UNSEEN, TooLongError, given_words, numbers_of, say_unseen
from twofold.data.conll import check_tree, plain_conllu, universal, with_tree
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.explaining import ExplainsWords, Question
from twofold.inputs import Input
from twofold.inputs.words import Sentence, WordsInput
from twofold.outputs.tags import WordNamesConfig, WordNamesOutput
from twofold.results import Arcs, Prediction, Tree
from twofold.results.explanation import Explanation, Probabilities
from twofold.types import Classes, HiddenSpec, Target

TREE_MEMORY = 1 << 30
"""Maximum memory, in bytes, of parsing one sentence."""
PAIR_BYTES = 80
"""Bytes for every pair of words: scores, and those of contracted nodes."""
MOST_TREE_WORDS = math.isqrt(TREE_MEMORY // PAIR_BYTES)


@dataclass(frozen=True)
class Config(WordNamesConfig):
    """Settings of dependency parsing."""

    takes: ClassVar[type] = Arcs
    least: ClassVar[int] = 1

    column: tuple[str, ...] = ("heads", "relations")
    """Columns of heads (counted from 1; 0 is the root) and relations."""

    def __post_init__(self) -> None:
        if len(self.column) != 2:
            raise ValueError(f"column {list(self.column)}: a tree has two columns: [heads, relations]")

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> TreeOutput:
        assert isinstance(input, WordsInput)
        return TreeOutput(name, self, Classes(self.names or ()), input)


@dataclass(frozen=True)
class TreeOutput(ExplainsWords, WordNamesOutput):
    """Tree output: head and relation id of each word, alternating."""

    config: Config
    metrics: ClassVar[tuple[str, ...]] = ("loss", "tree")

    def gold(self, row: Row) -> tuple[list[int], list[str]]:
        """Heads and relations of a row, which must form a tree."""
        words, relations, column = self.words.value(row), self.names_in(row), self.config.column[0]
        given = row.values.get(column)
        heads = given.split() if isinstance(given, str) else given
        try:
            numbers = [int(str(head)) for head in heads or ()]
        except (TypeError, ValueError):
            raise TwofoldError(f"{row.place}: '{column}' must hold a whole number for each word") from None
        if not len(numbers) == len(relations) == len(words):
            raise TwofoldError(
                f"{row.place}: {len(numbers)} heads and {len(relations)} relations, but {len(words)} words; "
                "give each word one of both"
            )
        if wrong := check_tree(numbers):
            raise TwofoldError(f"{row.place}: the tree {wrong}; mend it or remove the sentence")
        return numbers, relations

    def values(self, rows: Sequence[Row]) -> Sequence[Ids]:
        known = set(map(universal, self.spec.names))

        def new(row: Row) -> list[str]:
            """Relations without subtypes, because an unseen subtype can still be answered rightly."""
            return [relation for relation in self.gold(row)[1] if universal(relation) not in known]

        say_unseen(rows, new, self.spec)
        return [self.numbers_in(row) for row in rows]

    def numbers_in(self, row: Row, kept: int | None = None) -> list[int]:
        """Alternating heads and relation ids of the first `kept` words, or of all."""
        heads, relations = self.gold(row)
        kept = len(heads) if kept is None else kept
        heads = [head if head <= kept else UNSEEN for head in heads[:kept]]
        return [value for pair in zip(heads, numbers_of(relations[:kept], self.spec), strict=True) for value in pair]

    def target(self, values: Sequence[Ids]) -> Target:
        """Targets (rows, words, 2): head and relation id."""
        flat = pad_ids(values, UNSEEN)[0]
        both = flat.view(len(flat), -1, 2)
        return Target(both.clamp(min=0), (both >= 0).all(-1))

    def accept(self, rows: Sequence[Row], items: Sequence[Sentence]) -> None:
        for row, sentence in zip(rows, items, strict=True):
            if len(sentence.starts) > MOST_TREE_WORDS:
                raise TooLongError(
                    f"{row.place}: {len(sentence.starts):,} words; a tree takes memory for every pair of words, and of "
                    f"{MOST_TREE_WORDS:,} words {TREE_MEMORY >> 30} GiB, which is the most; cut the sentence in two"
                )

    def plain(self, answer: Tree) -> dict[str, list[Any]]:
        return {"words": list(answer.words), "heads": list(answer.heads), "relations": list(answer.relations)}

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        tree = prediction.output
        arcs = zip(tree.words, tree.heads, tree.relations, strict=True)
        return " ".join(f"{word}/{head}/{relation}" for word, head, relation in arcs)

    def tree(self, answer: Tree) -> Tree:
        return answer

    def conllu(self, answer: Tree, lines: str | None) -> str:
        return with_tree(lines or plain_conllu(answer.words), answer.heads, answer.relations)

    def answer(self, given: Any, item: Any, raw: Arcs, begun: Ids = ()) -> Prediction:
        relations = tuple(self.spec.names[number] for number in raw.relations)
        return Prediction(given, Tree(given_words(given), raw.heads, relations), raw.score)

    def explain(self, question: Question, raw: Arcs) -> Explanation:
        explanation = super().explain(question, raw)
        words = explanation.output.words
        heads = Probabilities("heads", words, ("root", *words), raw.probabilities)
        relations = Probabilities("relations", words, self.spec.names, raw.relation_probabilities)
        return replace(explanation, probabilities=(heads, relations))

    def chosen(self, raw: Arcs, decided: Arcs, words: Sequence[int]) -> NDArray[np.float32]:
        """Probability of each word's head; NaN where the head is left out."""
        places = {0: 0} | {word + 1: place for place, word in enumerate(words, start=1)}
        heads = [places.get(decided.heads[word]) for word in words]
        return np.array(
            [np.nan if head is None else raw.probabilities[word, head] for word, head in enumerate(heads)], np.float32
        )
