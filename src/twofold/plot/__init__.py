"""Figures of answers: attention, influence of words, trees, masks, sounds and sheets of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from twofold.errors import TwofoldError
from twofold.model import Model
from twofold.outputs import Output
from twofold.plot.attention import draw_attention
from twofold.plot.figure import reduced
from twofold.plot.glances import draw_glances
from twofold.plot.images import Answered, draw_mask, draw_sheet
from twofold.plot.influence import draw_influence
from twofold.plot.maps import TITLES, Chosen
from twofold.plot.timelines import draw_over_time, draw_timelines
from twofold.plot.trees import draw_trees
from twofold.results import Prediction, Timeline
from twofold.results.explanation import Explanation

SHEET = 20
"""Maximum number of images, sounds or trees in one figure."""
AttentionName = Literal["encoder", "decoder", "cross"]


def draw(
    model: Model,
    predictions: Sequence[Prediction],
    path: Path,
    decoder: str | None = None,
    prefix: str | None = None,
    attention: tuple[AttentionName | None, Chosen, Chosen] = (None, None, None),
) -> None:
    """Draws answers: trees, masks, or a sheet of images or sounds; for the answer to one input its attention, or the
    influence of each word.

    attention: the name of attention, the layer and the head that are asked for, None each for the default
    """
    output = model.outputs[model.decoder_name(decoder)]
    if any(attention):
        _draw_attention(model, _explained(model, predictions[0], decoder, prefix), path, attention)
    elif trees := [tree for answer in predictions[:SHEET] if (tree := output.tree(answer.output)) is not None]:
        draw_trees(trees, path)
    elif not _draw_images(model, output, predictions, path):
        explanation = _explained(model, predictions[0], decoder, prefix)
        if explanation.attention_of("cross") is not None:
            _draw_attention(model, explanation, path, attention)
        elif timelines := _timelines(model, output, predictions[:SHEET]):
            draw_timelines(timelines, path)
        elif (image := model.input.image(predictions[0].input)) is not None:
            draw_sheet([Answered(image, output.caption(predictions[0].output))], path)
        else:
            explanation = _explained(model, predictions[0], decoder, prefix, influence=True)
            if explanation.influence is None:
                raise TwofoldError("--plot: this answer has nothing to draw; leave it out")
            draw_influence(explanation.influence, path)


def _draw_images(model: Model, output: Output[Any], predictions: Sequence[Prediction], path: Path) -> bool:
    """Draws several images with their answers, or the mask of one; False for what is neither."""
    prediction = predictions[0]
    image, mask = model.input.image(prediction.input), output.mask(prediction.output)
    if image is not None and len(predictions) > 1:
        draw_sheet([_answered(model, output, answer) for answer in predictions[:SHEET]], path)
    elif image is not None and mask is not None:
        draw_mask(image, mask, path)
    else:
        return False
    return True


def _draw_attention(
    model: Model, explanation: Explanation, path: Path, asked: tuple[AttentionName | None, Chosen, Chosen]
) -> None:
    """Draws the attention that is asked for: over an image, over time, or over tokens."""
    name, layer, head = asked
    attention = explanation.attention_of(name or "cross")
    if attention is None:
        kinds = [TITLES[other.name].lower() for other in explanation.attention]
        said = f"it has {' and '.join(kinds)}" if kinds else "it has none"
        raise TwofoldError(f"--plot: this model has no {TITLES[name or 'cross'].lower()} to draw; {said}")
    image = model.input.image(explanation.input)
    if explanation.timeline is not None and attention.name == "cross":
        draw_over_time(explanation.timeline, attention, path, layer, head)
    elif image is not None and explanation.grid is not None and attention.name == "cross":
        box = model.input.box((image.height, image.width))
        draw_glances(image, attention, explanation.grid, path, box, layer, head)
    else:
        draw_attention(attention, path, layer, head)


def _explained(
    model: Model, prediction: Prediction, decoder: str | None, prefix: str | None, influence: bool = False
) -> Explanation:
    """Explanation of a prediction."""
    # A text's own tokens: its text, tokenized anew, may have other tokens than were generated.
    written = prediction.tokens
    return model.explain(prediction.input, decoder=decoder, prefix=prefix, written=written, influence=influence)


def _answered(model: Model, output: Output[Any], prediction: Prediction) -> Answered:
    image, mask = model.input.image(prediction.input), output.mask(prediction.output)
    assert image is not None
    return Answered(reduced(image), "" if mask else output.caption(prediction.output), mask)


def _timelines(model: Model, output: Output[Any], predictions: Sequence[Prediction]) -> list[tuple[str, Timeline]]:
    """Inputs along a time axis, each with its answer; none if the inputs have no time axis."""
    items = model.input.items([model.input.row(prediction.input, "input") for prediction in predictions])
    drawn = zip(predictions, map(model.input.timeline, items), strict=True)
    return [(output.caption(prediction.output), timeline) for prediction, timeline in drawn if timeline is not None]
