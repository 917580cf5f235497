"""Training of text decoders: the target shifted right, label smoothing, scheduled sampling, and shared tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from tests.conftest import decoder, encoder, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.decoder import TextDecoder, sampled_teaching
from twofold.model import Model
from twofold.types import Hidden, HiddenSpec, Target, Vocabulary

PAD, UNKNOWN, START, END = range(4)
VOCABULARY = Vocabulary(size=11, limit=7, pad=PAD, unknown=UNKNOWN, start=START, end=END)
LINES = [[4, 5, 6, 7, 8], [9], [10, 4, 4]]
EXAMPLES = [{"source": "one two", "target": "12"}, {"source": "seven", "target": "7"}]
each = pytest.mark.parametrize("kind", ["rnn", "attention_rnn", "transformer"])
each_sampled = pytest.mark.parametrize("kind", ["rnn", "attention_rnn"])


def make_decoder(kind: str, **settings: Any) -> TextDecoder:
    torch.manual_seed(0)
    part = decoder(kind, dropout=0.0, **settings)
    built = part.build(HiddenSpec(states=10, summary=10), VOCABULARY)
    assert isinstance(built, TextDecoder)
    with torch.no_grad():
        built.output.weight.mul_(3)  # so that tokens are not all about as likely
    return built


def some_hidden() -> Hidden:
    torch.manual_seed(1)
    mask = torch.arange(5) < torch.tensor([[5], [1], [3]])
    return Hidden(mask=mask, states=3 * torch.randn(3, 5, 10), summary=3 * torch.randn(3, 10))


def some_target() -> Target:
    rows = [[START, *line, END] for line in LINES]
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    return Target(tokens, torch.arange(longest) < torch.tensor([[len(row)] for row in rows]))


def log_probabilities(logits: Tensor) -> list[float]:
    values = logits.double().tolist()
    total = math.log(sum(math.exp(value) for value in values))
    return [value - total for value in values]


@torch.no_grad()
def by_hand(part: TextDecoder, hidden: Hidden, predicted: bool = False, smoothing: float = 0.0) -> float:
    """The loss in float64, token by token; each next input is the right token, or the decoder's own choice."""
    loss = 0.0
    for row, line in enumerate(LINES):
        state: Any = part.start(hidden.select(torch.tensor([row])))
        token = START
        for gold in [*line, END]:
            step = part.step(state, torch.tensor([token]))
            state, scores = step.state, log_probabilities(part.output(step.features)[0])
            loss -= (1 - smoothing) * scores[gold] + smoothing * sum(scores) / VOCABULARY.size
            token = max(range(VOCABULARY.size), key=scores.__getitem__) if predicted else gold
    return loss


@each
@pytest.mark.parametrize("training", [False, True])
def test_the_loss_is_that_of_the_next_token_given_the_right_ones(kind: str, training: bool) -> None:
    part, hidden, target = make_decoder(kind).train(training), some_hidden(), some_target()
    loss = part.loss(hidden, target)
    assert loss.sum.item() == pytest.approx(by_hand(part, hidden), rel=1e-5)
    assert loss.count == part.count(target) == sum(len(line) + 1 for line in LINES)


@each
def test_a_whole_log_probability_is_the_loss_of_that_row_turned_around(kind: str) -> None:
    part, hidden, target = make_decoder(kind).eval(), some_hidden(), some_target()
    scores = part.log_probability(hidden, target)
    for row in range(len(LINES)):
        place = torch.tensor([row])
        alone = part.loss(hidden.select(place), Target(target.tokens[place], target.mask[place]))
        assert scores[row].item() == pytest.approx(-alone.sum.item(), rel=1e-5)


@each
def test_labels_are_smoothed_by_the_formula_and_only_while_training(kind: str) -> None:
    part, hidden, target = make_decoder(kind, label_smoothing=0.2), some_hidden(), some_target()
    plain, smooth = by_hand(part, hidden), by_hand(part, hidden, smoothing=0.2)
    assert abs(smooth - plain) > 0.1
    assert part.train().loss(hidden, target).sum.item() == pytest.approx(smooth, rel=1e-5)
    assert part.eval().loss(hidden, target).sum.item() == pytest.approx(plain, rel=1e-5)


@each
def test_teaching_with_no_chance_of_sampling_equals_plain_teaching(kind: str) -> None:
    part, hidden, target = make_decoder(kind).eval(), some_hidden(), some_target()
    tokens, mask = target.tokens[:, :-1], target.mask[:, 1:]
    taught, sampled = part.teach(hidden, tokens, mask, 0.0), sampled_teaching(part, hidden, tokens, 0.0)
    torch.testing.assert_close(sampled[mask], taught[mask], atol=1e-5, rtol=1e-5)


@each_sampled
def test_scheduled_sampling_grows_from_the_right_tokens_to_the_decoders_own(kind: str) -> None:
    part, hidden, target = make_decoder(kind, scheduled_sampling=1.0), some_hidden(), some_target()
    right, predicted = by_hand(part, hidden), by_hand(part, hidden, predicted=True)
    assert abs(right - predicted) > 0.1
    part.train()
    assert part.loss(hidden, target, progress=0.0).sum.item() == pytest.approx(right, rel=1e-5)
    assert part.loss(hidden, target, progress=1.0).sum.item() == pytest.approx(predicted, rel=1e-5)
    torch.manual_seed(0)
    between = {round(part.loss(hidden, target, progress=0.5).sum.item(), 4) for _ in range(8)}
    assert len(between) > 2
    assert part.eval().loss(hidden, target, progress=1.0).sum.item() == pytest.approx(right, rel=1e-5)


@each_sampled
def test_gradients_flow_through_what_was_sampled(kind: str) -> None:
    part, hidden, target = make_decoder(kind, scheduled_sampling=1.0).train(), some_hidden(), some_target()
    part.loss(hidden, target, progress=1.0).sum.backward()  # type: ignore[no-untyped-call]
    assert [name for name, value in part.named_parameters() if value.grad is None or not value.grad.any()] == []


@each
def test_a_tied_output_is_the_table_of_token_vectors(kind: str) -> None:
    tied, free = make_decoder(kind), make_decoder(kind, tied=False)
    for part, same in ((tied, True), (free, False)):
        table = cast(Any, part).embedding.weight
        assert (part.output.weight is table) == same
        assert (part.output.weight.data_ptr() == table.data_ptr()) == same
        assert (part.output.bias is None) == same


PAIRS = [("rnn", "rnn"), ("rnn", "attention_rnn"), ("transformer", "transformer")]


def tables(model: Model) -> set[int]:
    """Addresses of the tables of token vectors of all parts."""
    parts: list[Any] = [model.encoder, model.decoder()]
    return {part.embedding.weight.data_ptr() for part in parts}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("reads", "writes"), PAIRS)
def test_one_table_serves_both_parts_and_is_saved_once(
    tokenizer: TextTokenizer, tmp_path: Path, reads: str, writes: str, tied: bool
) -> None:
    model = small_model(tokenizer, encoder(reads), decoder(writes, tied=tied), tie_embeddings=True)
    apart = small_model(tokenizer, encoder(reads), decoder(writes, tied=tied))
    assert len(tables(model)) == 1
    assert len(tables(apart)) == 2
    output: Any = cast(TextDecoder, model.decoder()).output
    assert (output.weight.data_ptr() in tables(model)) == tied
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.loss(model.batch(EXAMPLES)).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert len(tables(model)) == 1
    model.save_pretrained(tmp_path / "saved")
    with safe_open(tmp_path / "saved" / "model.safetensors", framework="pt") as file:
        shapes = [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118 - not a dict
    assert sum(shape[0] == len(tokenizer) and len(shape) == 2 for shape in shapes) == (1 if tied else 2)
    loaded = Model.from_pretrained(tmp_path / "saved")
    assert len(tables(loaded)) == 1
    assert torch.equal(loaded.loss(loaded.batch(EXAMPLES)), model.eval().loss(model.batch(EXAMPLES)))


def test_tables_of_different_widths_cannot_be_shared(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match=r"tie_embeddings.*same width"):
        small_model(tokenizer, encoder("rnn", embedding=8), decoder("rnn", embedding=10), tie_embeddings=True)
