"""The convolutional encoder: what its states and summary are, and norms under accumulated gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder, small_image_model, some_image, some_mask
from tests.images import segmenting, squares_files, write_files
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders.convnet import Config
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.image import Images
from twofold.inputs.text import Tokens
from twofold.layers.convolutions import ImageBatchNorm
from twofold.model import Model
from twofold.recipe import Recipe, train
from twofold.types import Batch, Features, Hidden

ALL = frozenset({"states", "summary", "maps"})
EXAMPLES: list[dict[str, Any]] = [
    {"image": some_image(seed=number), "mask": some_mask(seed=number), "captions": captions}
    for number, captions in enumerate([["a b", "c"], ["seven hundred and two"], ["1", "2", "3"], ["e f g"]])
]


def read(config: Config, pixels: Tensor, training: bool = False) -> Hidden:
    torch.manual_seed(0)
    part = config.build(Features(), ALL).train(training)
    return part(Batch({INPUT: Images(pixels)}))


def test_states_are_the_places_of_the_coarsest_map_row_by_row_and_the_summary_is_their_mean() -> None:
    hidden = read(Config(widths=(8, 12), blocks=1), torch.randn(2, 3, 9, 14))
    last = hidden.pyramid()[-1]
    assert hidden.grid == tuple(last.shape[2:]) == (3, 4)
    for row in range(2):
        for place in range(12):
            assert torch.equal(hidden.need("states")[row, place], last[row, :, place // 4, place % 4])
    torch.testing.assert_close(hidden.need("summary"), last.mean((2, 3)))


def test_a_batch_without_images_is_refused() -> None:
    part = Config(widths=(8,)).build(Features(), ALL)
    with pytest.raises(ValueError, match="this batch holds no Images"):
        part(Batch({INPUT: Tokens(torch.ones(1, 2).long(), torch.ones(1, 2).bool())}))


def test_dropout_reaches_states_and_summary_but_no_map() -> None:
    pixels = torch.randn(2, 3, 12, 12)
    without, with_dropout = (read(Config(widths=(8, 12), dropout=share), pixels, training=True) for share in (0.0, 0.9))
    assert all(torch.equal(one, other) for one, other in zip(without.pyramid(), with_dropout.pyramid(), strict=True))
    assert not torch.equal(without.need("states"), with_dropout.need("states"))
    assert not torch.equal(without.need("summary"), with_dropout.need("summary"))


def test_a_single_pixel_is_held_against_what_was_seen_before() -> None:
    torch.manual_seed(0)
    norm = ImageBatchNorm(6)
    for _ in range(3):
        norm(torch.randn(4, 6, 5, 5) * 2 + 1)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    pixel = torch.randn(1, 6, 1, 1)
    learned = norm(pixel)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    assert torch.equal(learned, norm.eval()(pixel))


def gradients_of(model: Model, parts: list[list[dict[str, Any]]]) -> dict[str, Tensor]:
    """Those of several parts of one batch, added up."""
    model.zero_grad()
    batches = [model.batch(part) for part in parts]
    counts = {name: sum(model.counts(batch)[name] for batch in batches) for name in model.decoders}
    for batch in batches:
        model.weighted(model.losses(batch), counts).backward()  # type: ignore[no-untyped-call]
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("writes", [("unet",), ("attention_rnn",), ("unet", "transformer")], ids="-".join)
def test_with_group_norm_parts_of_a_batch_add_up_to_the_gradients_of_the_whole(
    tokenizer: TextTokenizer, writes: tuple[str, ...]
) -> None:
    settings: dict[str, dict[str, Any]] = {"unet": {"norm": "group", "dice": 1.0, "focal": 1.0}}
    parts = [decoder(kind, dropout=0.0, **settings.get(kind, {})) for kind in writes]
    model = small_image_model(tokenizer, encoder("convnet", norm="group"), *parts).train()
    whole = gradients_of(model, [EXAMPLES])
    for split in ([EXAMPLES[:1], EXAMPLES[1:]], [[one] for one in EXAMPLES]):
        computed = gradients_of(model, split)
        assert computed.keys() == whole.keys() == dict(model.named_parameters()).keys()
        for name, value in whole.items():
            torch.testing.assert_close(computed[name], value, atol=1e-5, rtol=1e-5)


def test_with_batch_norm_they_do_not(tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet", norm="group")).train()
    whole, split = gradients_of(model, [EXAMPLES]), gradients_of(model, [EXAMPLES[:1], EXAMPLES[1:]])
    assert not all(torch.allclose(split[name], value, atol=1e-5, rtol=1e-5) for name, value in whole.items())


@pytest.mark.parametrize(("reads", "writes"), [("batch", "batch"), ("batch", "group"), ("group", "batch")])
def test_batch_norm_does_not_go_with_accumulated_gradients(tmp_path: Path, reads: str, writes: str) -> None:
    images = write_files(tmp_path / "images", squares_files(6))
    recipe = segmenting(images, encoder={"norm": reads}, decoder={"norm": writes}, train={"accumulate": 2})
    with pytest.raises(TwofoldError, match=r"norm: batch does not go with train\.accumulate: .* norm: group") as caught:
        train(Recipe.of(recipe), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_group_norm_goes_with_accumulated_gradients(tmp_path: Path) -> None:
    images = write_files(tmp_path / "images", squares_files(6))
    recipe = segmenting(images, encoder={"norm": "group"}, decoder={"norm": "group"}, train={"accumulate": 2})
    assert train(Recipe.of(recipe), tmp_path / "run").steps == 3
