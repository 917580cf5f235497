"""Contracts of every file of every folder of parts, so that a new one is tested without asking."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest
import torch

import twofold
from twofold.config import ROLES, Part, Role, kinds, part_config, part_module, structure, unstructure
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import InputConfig
from twofold.losses import LossConfig, ScoredRows
from twofold.metrics import Evaluation, Report, family
from twofold.outputs import OutputConfig

BASES: dict[Role, type[Part]] = {
    "inputs": InputConfig,
    "outputs": OutputConfig,
    "encoders": EncoderConfig,
    "decoders": DecoderConfig,
    "losses": LossConfig,
}
"""Base classes of the settings of each folder of parts; metrics have no settings."""
NEEDED: dict[tuple[Role, str], dict[str, Any]] = {("outputs", "mask"): {"classes": ["ground"]}}
"""Settings without which a part cannot be."""
every_file = pytest.mark.parametrize(("role", "kind"), [(role, kind) for role in ROLES for kind in kinds(role)])
every_part = pytest.mark.parametrize(("role", "kind"), [(role, kind) for role in BASES for kind in kinds(role)])
every_loss = pytest.mark.parametrize("kind", kinds("losses"))
every_metric = pytest.mark.parametrize("kind", kinds("metrics"))


def test_every_folder_of_parts_is_read_by_the_contracts() -> None:
    assert {*BASES, "metrics"} == set(ROLES)
    folders = {path.name for path in Path(twofold.__file__).parent.iterdir() if (path / "__init__.py").exists()}
    assert set(ROLES) <= folders
    assert all(kinds(role) for role in ROLES)


@every_file
def test_every_file_opens_with_one_sentence(role: Role, kind: str) -> None:
    text = inspect.getdoc(part_module(role, kind))
    assert text
    assert text[0].isupper()
    assert text.endswith(".")
    assert "\n\n" not in text
    assert ". " not in text.replace("\n", " ")


@every_part
def test_every_part_has_settings_of_its_folder_that_are_frozen(role: Role, kind: str) -> None:
    part = part_config(role, kind)
    assert issubclass(part, BASES[role])
    assert part.role == role
    assert cast(Any, part).__dataclass_params__.frozen
    assert part.__doc__


@every_part
def test_every_setting_has_a_docstring_beneath_it(role: Role, kind: str) -> None:
    part = part_config(role, kind)
    stated: dict[str, bool] = {}
    for ancestor in reversed(part.__mro__):
        if dataclasses.is_dataclass(ancestor):
            stated.update(documented(ancestor))
    assert {field.name for field in dataclasses.fields(part)} == set(stated)
    assert [name for name, stands in stated.items() if not stands] == []


def documented(part: type) -> Mapping[str, bool]:
    """For each field that a class states, whether a docstring stands beneath it."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(part) or part))
    body = next(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == part.__name__)
    stated = {}
    for node, beneath in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.annotation).startswith("ClassVar"):
            continue
        if isinstance(node.target, ast.Name):
            text = beneath.value if isinstance(beneath, ast.Expr) else None
            stated[node.target.id] = isinstance(text, ast.Constant) and bool(str(text.value).strip())
    return stated


@every_part
def test_settings_stay_the_same_as_plain_values_and_back(role: Role, kind: str) -> None:
    part: Any = structure({"kind": kind, **NEEDED.get((role, kind), {})}, BASES[role])
    assert unstructure(part)["kind"] == kind
    assert structure(unstructure(part), BASES[role]) == part


# --- what parts say of the parts before and after them ---


@pytest.mark.parametrize("kind", kinds("encoders"))
def test_an_encoder_reads_what_its_usual_input_gives(kind: str) -> None:
    encoder = cast(type[EncoderConfig], part_config("encoders", kind))
    assert issubclass(input_config(encoder.input).gives, encoder.reads)


@pytest.mark.parametrize("kind", kinds("decoders"))
def test_a_decoder_writes_what_its_usual_output_takes(kind: str) -> None:
    decoder = cast(type[DecoderConfig], part_config("decoders", kind))
    assert cast(type[OutputConfig], part_config("outputs", decoder.output)).takes is decoder.writes


@pytest.mark.parametrize("kind", kinds("outputs"))
def test_an_output_is_told_from_its_usual_input_and_some_decoder_writes_it(kind: str) -> None:
    output = cast(type[OutputConfig], part_config("outputs", kind))
    if output.input is not None:
        assert issubclass(input_config(output.input).gives, output.reads)
    decoders = [cast(type[DecoderConfig], part_config("decoders", name)) for name in kinds("decoders")]
    assert any(decoder.writes is output.takes for decoder in decoders)


@pytest.mark.parametrize("kind", kinds("inputs"))
def test_some_encoder_reads_what_an_input_gives(kind: str) -> None:
    encoders = [cast(type[EncoderConfig], part_config("encoders", name)) for name in kinds("encoders")]
    assert any(issubclass(input_config(kind).gives, encoder.reads) for encoder in encoders)


def input_config(kind: str) -> type[InputConfig]:
    return cast(type[InputConfig], part_config("inputs", kind))


# --- metrics ---


@every_metric
def test_every_metric_says_whether_higher_is_better_and_measures_an_evaluation(kind: str) -> None:
    metrics, measure = family(kind).METRICS, family(kind).measure
    assert metrics
    assert all(isinstance(name, str) and isinstance(higher, bool) for name, higher in metrics.items())
    assert list(inspect.signature(measure).parameters) == ["evaluation"]
    assert get_type_hints(measure) == {"evaluation": Evaluation, "return": Report}


# --- losses ---


def some_scores(taught: bool = True) -> ScoredRows:
    """Contexts with different numbers of given negatives; the third has no teacher."""
    torch.manual_seed(0)
    scores = torch.randn(4, 7, requires_grad=True)
    right = torch.tensor([0, 1, 2, 3])
    allowed = torch.rand(4, 7) < 0.8
    allowed[torch.arange(4), right] = True
    given = [torch.tensor(numbers) for numbers in ([0, 4, 5], [1, 6], [2], [3, 0, 5, 6])]
    teacher = [torch.randn(len(numbers) if taught and number != 2 else 0) for number, numbers in enumerate(given)]
    return ScoredRows(scores, right, allowed, given, teacher)


def some_rows(scored: ScoredRows, rows: slice) -> ScoredRows:
    return ScoredRows(
        scored.scores[rows], scored.right[rows], scored.allowed[rows], scored.given[rows], scored.teacher[rows]
    )


def loss_of(kind: str) -> LossConfig:
    return structure({"kind": kind}, LossConfig)


@every_loss
def test_the_loss_of_many_contexts_is_the_sum_of_each_alone(kind: str) -> None:
    loss, scored = loss_of(kind), some_scores()
    alone = [loss.sum(some_rows(scored, slice(row, row + 1))) for row in range(4)]
    together = loss.sum(scored)
    assert together.shape == ()
    assert together > 0
    torch.testing.assert_close(together, torch.stack(alone).sum())


@every_loss
def test_a_loss_has_finite_gradients_for_what_it_is_told_and_none_for_what_may_be_right_too(kind: str) -> None:
    loss, scored = loss_of(kind), some_scores()
    (gradient,) = torch.autograd.grad(loss.sum(scored), scored.scores)
    assert gradient.isfinite().all()
    assert gradient.any(1).tolist() == [True, True, not loss.needs_teacher, True]
    if not loss.needs_teacher:
        assert not gradient[~scored.allowed].any()


@every_loss
def test_a_loss_follows_a_teacher_or_does_not_look_at_one(kind: str) -> None:
    loss = loss_of(kind)
    taught, alone = loss.sum(some_scores()), loss.sum(some_scores(taught=False))
    assert alone == 0 if loss.needs_teacher else torch.equal(taught, alone)


@every_loss
def test_a_loss_that_has_nothing_to_follow_can_still_be_learned_from(kind: str) -> None:
    loss, scored = loss_of(kind), some_scores(taught=False)
    (gradient,) = torch.autograd.grad(loss.sum(scored), scored.scores)
    assert bool(gradient.any()) != loss.needs_teacher


@every_loss
def test_a_weight_below_zero_is_refused(kind: str) -> None:
    with pytest.raises(TwofoldError, match="weight must be at least 0"):
        structure({"kind": kind, "weight": -1.0}, LossConfig)
