"""Every name of a checkpoint is mapped, known, or told; every tensor of transformers' models has its source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.convert import reference
from twofold.convert import Settings, tensorflow
from twofold.convert.contents import Item, Shape, refuse
from twofold.convert.tensorflow import Plan, Target, match
from twofold.errors import TwofoldError

BERT_CONFIG = {"model_type": "bert", **reference.BERT}
GPT2_CONFIG = {"model_type": "gpt2", "vocab_size": len(reference.TOKENS), "n_positions": reference.PLACES}
GPT2_CONFIG |= {name: reference.GPT2[name] for name in ("n_embd", "n_head", "n_layer")}


def bert_plan(shapes: dict[str, Shape]) -> Plan:
    model = tensorflow.model_shapes(Path("here"), BERT_CONFIG)
    return match(shapes, tensorflow.bert_targets(reference.LAYERS), model, tensorflow.BERT_HEADS)


def test_all_of_a_published_bert_has_its_place_or_is_known() -> None:
    shapes = reference.bert_shapes()
    plan = bert_plan(shapes)
    assert plan.misfits == ()
    assert {target.name for target in plan.used.values()} == tensorflow.model_shapes(Path("here"), BERT_CONFIG).keys()
    assert {item.why for item in plan.not_read} == {"training", "head"}
    heads = {item.name for item in plan.not_read if item.why == "head"}
    assert heads == {name for name in shapes if name.startswith("cls/") and "/adam_" not in name}
    assert plan.used.keys() | {item.name for item in plan.not_read} == shapes.keys()


def test_all_of_a_published_gpt2_has_its_place() -> None:
    model = tensorflow.model_shapes(Path("here"), GPT2_CONFIG)
    plan = match(reference.gpt2_shapes(), tensorflow.gpt2_targets(reference.LAYERS), model, tensorflow.GPT2_HEADS)
    assert (plan.misfits, plan.not_read) == ((), ())
    assert {target.name for target in plan.used.values()} == model.keys()
    assert plan.used.keys() == reference.gpt2_shapes().keys()


@pytest.mark.parametrize(
    "name",
    [
        "global_step",
        "beta1_power",
        "beta2_power",
        "model/wte/Adam",
        "model/wte/Adam_1",
        "bert/pooler/dense/bias/adam_v",
    ],
)
def test_what_belongs_to_a_training_is_known(name: str) -> None:
    plan = bert_plan({**reference.bert_shapes(), name: (3,)})
    assert plan.misfits == ()
    assert Item("training", name, (3,)) in plan.not_read


@pytest.mark.parametrize("name", ["output_weights", "output_bias", "cls/squad/output_weights"])
def test_heads_of_a_later_training_are_known(name: str) -> None:
    assert Item("head", name, (3, 16)) in bert_plan({**reference.bert_shapes(), name: (3, 16)}).not_read


def test_what_does_not_fit_is_told_by_name_and_shape() -> None:
    shapes = reference.bert_shapes()
    del shapes["bert/encoder/layer_1/intermediate/dense/kernel"]
    shapes["bert/encoder/layer_0/output/dense/kernel"] = (24, 8)
    shapes["bert/encoder/layer_3/output/dense/bias"] = (16,)
    shapes["global_steps"] = ()
    misfits = bert_plan(shapes).misfits
    assert list(map(str, misfits)) == [
        "another shape: bert/encoder/layer_0/output/dense/kernel (24, 8), expected (24, 16)",
        "unknown: bert/encoder/layer_3/output/dense/bias (16)",
        "unknown: global_steps ()",
        "missing: bert/encoder/layer_1/intermediate/dense/kernel (16, 24)",
    ]
    with pytest.raises(TwofoldError) as caught:
        refuse(Path("here"), misfits, "do this")
    assert str(caught.value).splitlines() == ["here: 4 things do not fit; do this", *map(str, misfits)]
    with pytest.raises(TwofoldError, match=re.escape(f"here: does not fit ({misfits[0]}); do this")):
        refuse(Path("here"), misfits[:1], "do this")


def test_a_tensor_that_only_the_model_knows_is_missing() -> None:
    plan = match({"a": (2,)}, {"a": Target("ours")}, {"ours": (2,), "new": (3,)}, tensorflow.BERT_HEADS)
    assert plan.misfits == (Item("missing", "new", (3,)),)


def test_a_tensor_that_the_model_does_not_know_is_unknown() -> None:
    plan = match(
        {"a": (2,), "b": (2,)}, {"a": Target("ours"), "b": Target("gone")}, {"ours": (2,)}, tensorflow.BERT_HEADS
    )
    assert plan.misfits == (Item("unknown", "b", (2,)),)


def test_values_are_turned_as_their_shapes_are() -> None:
    kernel, packed = np.arange(6).reshape(2, 3), np.arange(6).reshape(1, 2, 3)
    assert Target("a", "transposed").value(kernel).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert Target("a", "unpacked").value(packed).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert Target("a").value(kernel).tolist() == kernel.tolist()
    for target, value in ((Target("a", "transposed"), kernel), (Target("a", "unpacked"), packed)):
        assert target.value(value).shape == target.turned(value.shape)
        assert target.turned_back(target.turned(value.shape)) == value.shape


def test_settings_that_transformers_refuses_end_in_one_line() -> None:
    with pytest.raises(
        TwofoldError, match=r"^here: could not be loaded .*its settings must be those of the checkpoint$"
    ):
        tensorflow.model_shapes(Path("here"), {**BERT_CONFIG, "num_attention_heads": 3})


@pytest.mark.parametrize(
    ("files", "said", "chosen"),
    [
        (["bert_model.ckpt"], None, "bert_model.ckpt"),
        (["model.ckpt-5"], 'model_checkpoint_path: "gone"\n', "model.ckpt-5"),
        (["model.ckpt-5", "model.ckpt-90"], 'model_checkpoint_path: "/far/away/model.ckpt-90"\n', "model.ckpt-90"),
        (["model.ckpt-5", "model.ckpt-90"], 'model_checkpoint_path: "model.ckpt-5"\n', "model.ckpt-5"),
        (["a", "b"], 'model_checkpoint_path: "c"\nall_model_checkpoint_paths: "a"\n', None),
        (["a", "b"], None, None),
        ([], None, None),
    ],
)
def test_which_checkpoint_is_meant(files: list[str], said: str | None, chosen: str | None, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / f"{name}.index").touch()
    if said:
        (tmp_path / "checkpoint").write_text(said)
    if chosen:
        assert tensorflow.find_checkpoint(tmp_path) == tmp_path / chosen
        return
    with pytest.raises(TwofoldError, match=r"holds several checkpoints \(a, b\)" if files else "holds no checkpoint"):
        tensorflow.find_checkpoint(tmp_path)


@pytest.mark.parametrize("value", [None, "12", 0, -1, 2.0, True])
def test_sizes_must_be_whole_numbers(value: object, tmp_path: Path) -> None:
    (tmp_path / "bert_config.json").write_text(json.dumps({**reference.BERT, "hidden_size": value}))
    with pytest.raises(TwofoldError, match=r"bert_config.json: hidden_size must be there, as positive whole numbers; "):
        tensorflow.read_bert(tmp_path, Settings())
