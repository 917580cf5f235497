"""The parser: its scores are those of plain loops, its answers are trees, and padding changes none of them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.conftest import decoder, encoder
from tests.decoders.test_tags import wider
from tests.test_contracts import kinds_of
from tests.texts import small_reader, without_dropout
from twofold.data.conll import check_tree
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.tree import TreeDecoder
from twofold.inputs.words import Words
from twofold.model import Model
from twofold.results import Tree
from twofold.types import Batch, Classes, Hidden, HiddenSpec, Target

RELATIONS = ("left", "right", "root")
SENTENCES = [
    ["one", "thousandseven", "two"],
    ["seven"],
    ["a", "b", "hundredforty", "d", "삼백", "f"],
    ["two", "one"],
]
WIDTH = 5


def parser(tokenizer: TextTokenizer, names: tuple[str, ...] = RELATIONS, reads: str = "transformer") -> Model:
    parts = without_dropout(encoder(reads)), decoder("tree", width=8, relation_width=4, dropout=0.0)
    return small_reader(tokenizer, *parts, {"names": list(names)})


def rows() -> list[dict[str, Any]]:
    """Each word hangs from the one before it."""
    return [
        {"text": words, "heads": list(range(len(words))), "relations": ["root", *["left", "right"] * 9][: len(words)]}
        for words in SENTENCES
    ]


def part(names: tuple[str, ...] = RELATIONS) -> TreeDecoder:
    """Weights far from zero, in double precision."""
    torch.manual_seed(0)
    config: Any = decoder("tree", width=4, relation_width=3, dropout=0.0)
    built = config.build(HiddenSpec(states=WIDTH), Classes(names)).double().eval()
    assert isinstance(built, TreeDecoder)
    with torch.no_grad():
        for value in built.parameters():
            value.copy_(torch.randn_like(value))
    return built


def some_hidden() -> Hidden:
    """Four words, two and one, which begin at other places than they have numbers."""
    torch.manual_seed(1)
    words = torch.tensor([[1, 3, 4, 5], [2, 4, -1, -1], [1, -1, -1, -1]])
    return Hidden(mask=torch.ones(3, 6).bool(), states=torch.randn(3, 6, WIDTH).double(), words=words)


def layer(linear: nn.Linear, vector: Tensor) -> list[float]:
    """max(x, x / 10) of the linear map, number by number."""
    outputs = []
    for weights, bias in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True):
        value = bias + sum(weight * one for weight, one in zip(weights, vector.tolist(), strict=True))
        outputs.append(value if value > 0 else 0.1 * value)
    return outputs


def node(built: TreeDecoder, hidden: Hidden, row: int, number: int) -> Tensor:
    """The root, or the state of a word, counted from 1."""
    assert hidden.words is not None
    return built.root if number == 0 else hidden.need("states")[row, hidden.words[row, number - 1]]


def arc(built: TreeDecoder, hidden: Hidden, row: int, word: int, head: int) -> float:
    dependent = [*layer(built.word, node(built, hidden, row, word)), 1.0]
    other = layer(built.head, node(built, hidden, row, head))
    table: list[list[float]] = built.arc.tolist()
    return sum(dependent[i] * table[i][j] * other[j] for i in range(len(dependent)) for j in range(len(other)))


def relation(built: TreeDecoder, hidden: Hidden, row: int, word: int, head: int, name: int) -> float:
    dependent = [*layer(built.word_relation, node(built, hidden, row, word)), 1.0]
    other = [*layer(built.head_relation, node(built, hidden, row, head)), 1.0]
    table: list[list[float]] = built.relation[name].tolist()
    return sum(dependent[i] * table[i][j] * other[j] for i in range(len(dependent)) for j in range(len(other)))


def log_share(scores: list[float], chosen: int) -> float:
    return scores[chosen] - math.log(math.fsum(math.exp(one) for one in scores))


def loss_by_hand(built: TreeDecoder, hidden: Hidden, row: int, word: int, head: int, name: int, words: int) -> float:
    heads = [arc(built, hidden, row, word, other) for other in range(words + 1)]
    names = [relation(built, hidden, row, word, head, other) for other in range(len(RELATIONS))]
    return -log_share(heads, head) - log_share(names, name)


def test_the_loss_is_that_of_plain_loops() -> None:
    built, hidden = part(), some_hidden()
    trees = {0: ([2, 0, 2, 3], [0, 2, 1, 0]), 1: ([0, 1], [2, 1]), 2: ([0], [2])}
    tokens, counts = torch.zeros(3, 4, 2).long(), torch.zeros(3, 4).bool()
    expected = 0.0
    for row, (heads, names) in trees.items():
        for word, (head, name) in enumerate(zip(heads, names, strict=True), start=1):
            tokens[row, word - 1], counts[row, word - 1] = torch.tensor([head, name]), True
            expected += loss_by_hand(built, hidden, row, word, head, name, len(heads))
    loss = built.loss(hidden, Target(tokens, counts))
    assert loss.count == built.count(Target(tokens, counts)) == 7
    assert float(loss.sum.detach()) == pytest.approx(expected, rel=1e-5)
    counts[0, 1] = False  # a head that was cut off
    less = built.loss(hidden, Target(tokens, counts))
    assert float(less.sum.detach()) == pytest.approx(expected - loss_by_hand(built, hidden, 0, 2, 0, 2, 4), rel=1e-5)


def every_tree(words: int) -> list[tuple[int, ...]]:
    choices = itertools.product(range(words + 1), repeat=words)
    return [heads for heads in choices if check_tree(heads) is None]


@torch.no_grad()
def test_the_answer_is_the_best_of_all_trees_with_the_best_relations() -> None:
    built, hidden = part(), some_hidden()
    for row, (parsed, words) in enumerate(zip(built.predict(hidden, None), (4, 2, 1), strict=True)):
        likely = [
            [
                log_share([arc(built, hidden, row, word, other) for other in range(words + 1)], head)
                for head in range(words + 1)
            ]
            for word in range(1, words + 1)
        ]
        best = max(every_tree(words), key=lambda heads: sum(one[head] for one, head in zip(likely, heads, strict=True)))
        assert parsed.heads == best
        score = sum(one[head] for one, head in zip(likely, best, strict=True))
        for word, (head, name) in enumerate(zip(parsed.heads, parsed.relations, strict=True), start=1):
            allowed = [2] if head == 0 else [0, 1]
            scores = {one: relation(built, hidden, row, word, head, one) for one in allowed}
            assert name == max(scores, key=lambda one: scores[one])
            score += log_share(list(scores.values()), allowed.index(name))
        assert parsed.score == pytest.approx(score, rel=1e-5)


def test_only_the_root_is_called_root(tokenizer: TextTokenizer) -> None:
    model = parser(tokenizer)
    with torch.no_grad():
        for relation, bias in ((2, 9.0), (0, -9.0)):  # it would like to call everything root
            model.decoder().get_parameter("relation")[relation, -1, -1] += bias
    for prediction in model.predict(SENTENCES):
        tree = prediction.output
        assert [name == "root" for name in tree.relations] == [head == 0 for head in tree.heads]


def test_where_there_is_no_other_relation_than_root_every_word_has_it(tokenizer: TextTokenizer) -> None:
    for prediction in parser(tokenizer, ("root",)).predict(SENTENCES):
        assert set(prediction.output.relations) == {"root"}
        assert math.isfinite(prediction.score)


@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
def test_trees_over_a_batch_are_those_of_each_sentence_alone(tokenizer: TextTokenizer, reads: str) -> None:
    model = parser(tokenizer, reads=reads)
    together = model.predict(SENTENCES)
    for words, prediction in zip(SENTENCES, together, strict=True):
        assert isinstance(prediction.output, Tree)
        assert prediction.output.words == tuple(words)
        assert check_tree(prediction.output.heads) is None
        (alone,) = model.predict([words])
        assert alone.output == prediction.output
        assert alone.score == pytest.approx(prediction.score, abs=1e-3)


def test_more_padding_changes_no_tree(tokenizer: TextTokenizer) -> None:
    model = parser(tokenizer).eval()
    batch = model.batch(rows())
    target = batch.targets["main"]
    wide = Batch(
        {"input": wider(batch.read(Words))},
        {"main": Target(F.pad(target.tokens, (0, 0, 0, 2)), F.pad(target.mask, (0, 2)))},
    )
    torch.testing.assert_close(model.loss(wide), model.loss(batch))
    assert [one.heads for one in model.answers(wide, "main")] == [one.heads for one in model.answers(batch, "main")]


def test_the_loss_of_many_sentences_is_the_sum_of_each(tokenizer: TextTokenizer) -> None:
    model = parser(tokenizer).eval()
    together = model.losses(model.batch(rows()))["main"]
    alone = [model.losses(model.batch([row]))["main"] for row in rows()]
    torch.testing.assert_close(together.sum, torch.stack([one.sum for one in alone]).sum(), atol=1e-4, rtol=1e-5)
    assert together.count == sum(one.count for one in alone)


@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
def test_every_parameter_learns_over_every_encoder(tokenizer: TextTokenizer, reads: str) -> None:
    model = parser(tokenizer, reads=reads)
    batch = model.batch(rows())
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]
