"""Frozen parameters keep their values to the last bit, and levels are unfrozen from the top down."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import twofold
from tests.encoders.tiny_backbones import save
from tests.images import captioning, segmenting, squares_files, write_files, write_shapes
from tests.recipe import tasks
from tests.texts import colored, recipe, write
from twofold.data.batches import Moment
from twofold.errors import TwofoldError
from twofold.model import Model
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.training.freezing import Freezing
from twofold.training.loop import Trainer

LABEL = ({"source": "text", "target": "label"}, {"kind": "label"})
CONVNET = {"kind": "text_convnet", "embedding": 12, "channels": 8, "orders": [2, 3], "width": 10, "bottleneck": 16}


pytestmark = pytest.mark.usefixtures("one_thread")


def trainer_of(content: dict[str, Any], folder: Path) -> Trainer:
    """A training that is about to begin."""
    made = Recipe.of(content)
    torch.manual_seed(1)
    model = build_model(made, folder / "tokenizers")
    cache = cache_rows(made, model)
    rows = training_rows(made, cache, split_rows(made, cache, model), model)
    return Trainer(model, rows, None, made.train, folder)


def labelling(folder: Path, **train: Any) -> dict[str, Any]:
    """A recipe whose encoder has dropout."""
    data, writes = LABEL
    content = recipe(write(folder, colored, 40), data, writes, **{"max_steps": 4, **train})
    content["encoder"] |= {"dropout": 0.3, "layers": 3}
    return content


def kept(model: Model) -> dict[str, Tensor]:
    """All that an encoder knows, statistics of norms included."""
    return {
        f"{number}.{name}": value.clone()
        for number, tower in enumerate(model.encoders())
        for name, value in tower.state_dict().items()
    }


CASES = ["text", "backbone", "squares", "captions", "bi", "poly", "cross", "two towers"]


def case(kind: str, folder: Path) -> dict[str, Any]:
    frozen = {"freeze": "encoder", "max_steps": 3}
    match kind:
        case "text":
            return labelling(folder, **frozen)
        case "backbone":
            content = labelling(folder, **frozen)
            content["encoder"] = {"kind": "pretrained", "name": str(save("bert", folder / "bert")), "dropout": 0.2}
            content["input"]["max_tokens"] = 60
            return content
        case "squares":  # its norms keep statistics
            return segmenting(write_files(folder / "p", squares_files(8)), train=frozen)
        case "captions":
            return captioning(write_shapes(folder / "p", 8), encoder={"dropout": 0.2}, train=frozen)
        case _:
            ranks, two_towers = ("bi", True) if kind == "two towers" else (kind, False)
            return tasks.recipe(
                tasks.write_pairs(folder), ranks, two_towers=two_towers, encoder={"dropout": 0.2}, train=frozen
            )


@pytest.mark.parametrize("kind", CASES)
def test_a_frozen_encoder_is_the_same_to_the_last_bit_and_all_else_learns(tmp_path: Path, kind: str) -> None:
    trainer = trainer_of(case(kind, tmp_path), tmp_path / "run")
    model = trainer.model
    before, decoders = kept(model), {name: one.clone() for name, one in model.named_parameters()}
    trainer.run()
    after = kept(model)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    read = {id(one) for tower in model.encoders() for one in tower.parameters()}
    others = [name for name, one in model.named_parameters() if id(one) not in read]
    assert others
    parameters = dict(model.named_parameters())
    assert not [name for name in others if torch.equal(parameters[name], decoders[name])]


def test_nothing_is_kept_for_the_gradients_of_what_is_frozen(tmp_path: Path) -> None:
    trainer = trainer_of(labelling(tmp_path, freeze="encoder"), tmp_path / "run")
    model = cast(Any, trainer.model)
    batch = trainer.rows.batch(trainer.rows.plan(0).rows(0), Moment())
    assert not model.encode_batch(batch).need("states").requires_grad
    model.loss(batch).backward()
    assert all(one.grad is None for one in model.encoder.parameters())
    assert all(one.grad is not None for one in model.decoders.parameters())
    trainer.run()
    assert not any(trainer.optimizer.state.get(one) for one in model.encoder.parameters())


@pytest.mark.parametrize("kind", CASES)
def test_a_frozen_encoder_reads_as_when_it_answers(tmp_path: Path, kind: str) -> None:
    trainer = trainer_of(case(kind, tmp_path), tmp_path / "run")
    model = trainer.model
    assert model.training
    assert not any(module.training for tower in model.encoders() for module in tower.modules())
    assert all(module.training for module in model.get_submodule("decoders").modules())
    model.eval()
    model.train()  # as after an evaluation
    assert not any(module.training for tower in model.encoders() for module in tower.modules())


def test_an_encoder_that_learns_reads_with_dropout(tmp_path: Path) -> None:
    trainer = trainer_of(labelling(tmp_path), tmp_path / "run")
    assert all(module.training for module in trainer.model.modules())


def learning(model: Model) -> list[str]:
    return [name for name, one in model.encoder.named_parameters() if one.requires_grad]


def test_layers_thaw_from_the_top_down(tmp_path: Path) -> None:
    trainer = trainer_of(labelling(tmp_path, freeze="gradual", unfrozen_by=0.8, max_steps=10), tmp_path / "run")
    model = trainer.model
    seen: list[set[str]] = []

    class Recorded:
        """Notes at every step which levels learn."""

        def plan(self, epoch: int) -> Any:
            return rows.plan(epoch)

        def batch(self, some: Any, moment: Moment) -> Any:
            frozen = {
                name.split(".")[1] if name.startswith("blocks") else name.split(".")[0] for name in learning(model)
            }
            assert bool(frozen) == model.encoder.training
            seen.append(frozen)
            return rows.batch(some, moment)

    rows = trainer.rows
    trainer.rows = cast(Any, Recorded())
    before = kept(model)
    trainer.run()
    top, middle, low = {"norm", "2"}, {"norm", "2", "1"}, {"norm", "2", "1", "0"}
    everything = low | {"embedding"}
    assert seen == [set(), set(), top, top, middle, middle, low, low, everything, everything]
    assert not [name for name, value in kept(model).items() if torch.equal(value, before[name])]


def test_each_level_changes_only_once_it_has_thawed(tmp_path: Path) -> None:
    content = labelling(tmp_path, freeze="gradual", unfrozen_by=1.0, max_steps=4, weight_decay=0.1)
    trainer = trainer_of(content, tmp_path / "run")
    before = kept(trainer.model)
    trainer.run()
    changed = {name for name, value in kept(trainer.model).items() if not torch.equal(value, before[name])}
    assert changed == before.keys() - {"0.embedding.weight"}  # none, one, two, three levels: the last is not reached


def test_a_mean_of_the_weights_is_also_one_of_layers_that_thawed(tmp_path: Path) -> None:
    content = labelling(tmp_path, freeze="gradual", unfrozen_by=0.3, ema=0.9, learning_rate=3e-2)
    trainer = trainer_of({**content, "train": {**content["train"], "max_steps": 12}}, tmp_path / "run")
    trainer.run()
    saved: Any = twofold.load(tmp_path / "run", "cpu")
    assert not torch.equal(saved.encoder.embedding.weight, cast(Any, trainer.model.encoder).embedding.weight)
    assert trainer.ema is not None
    assert any(torch.equal(saved.encoder.embedding.weight, mean) for mean in trainer.ema.means)


def test_a_table_that_is_to_stay_is_never_thawed(tmp_path: Path) -> None:
    content = labelling(tmp_path, freeze="gradual", unfrozen_by=0.5)
    content["encoder"] = CONVNET
    made = Recipe.of(content)
    model = build_model(made, tmp_path / "tokenizers")
    table = cast(Any, model.encoder).embedding.weight.requires_grad_(False)  # as its own settings may say
    freezing = Freezing(model, made.train)
    for progress in (0.0, 0.5, 1.0):
        freezing.at(progress)
        assert not table.requires_grad
        assert any(one.requires_grad for one in model.encoder.parameters()) == (progress > 0)


def test_a_frozen_network_with_batch_norm_may_be_read_in_several_batches(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(8))
    settings = {"freeze": "encoder", "accumulate": 2}
    content = segmenting(folder, train=settings, decoder={"norm": "group"})
    trainer_of(content, tmp_path / "run").run()
    for freeze in ("none", "gradual"):
        with pytest.raises(TwofoldError, match=r"norm: batch does not go with train\.accumulate"):
            trainer_of({**content, "train": {**content["train"], "freeze": freeze}}, tmp_path / freeze)


def test_a_model_of_which_nothing_would_learn_is_refused(tmp_path: Path) -> None:
    content = tasks.recipe(tasks.write_pairs(tmp_path), decoder={"learn_scale": False}, train={"freeze": "encoder"})
    with pytest.raises(TwofoldError, match=r"train\.freeze=encoder: no other parameters are left to train"):
        train(Recipe.of(content), tmp_path / "run")
    train(Recipe.of({**content, "train": {**content["train"], "freeze": "gradual"}}), tmp_path / "gradual")


def test_stages_that_have_not_thawed_read_as_when_they_answer(tmp_path: Path) -> None:
    """Their statistics stay, while those of the stages above them move."""
    content = segmenting(write_files(tmp_path / "p", squares_files(8)), train={"freeze": "gradual", "unfrozen_by": 1.0})
    trainer = trainer_of({**content, "train": {**content["train"], "max_steps": 3}}, tmp_path / "run")
    before = kept(trainer.model)
    trainer.run()
    changed = {name for name, value in kept(trainer.model).items() if not torch.equal(value, before[name])}
    assert not [name for name in changed if name.startswith("0.stem.")]
    assert "0.stages.1.0.second.norm.running_mean" in changed
