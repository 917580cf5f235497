"""Checkpoints as Google and OpenAI wrote them: the states are those of their own formulas, computed in numpy."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from tests.commands import answer, refusal, run
from tests.convert import reference
from twofold.convert import Settings, convert
from twofold.data.named_models import folder_of
from twofold.encoders.pretrained import Config
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.types import Batch, Vocabulary

pytestmark = pytest.mark.bench

IDS = np.array([[3, 6, 7, 8, 9, 10, 4, 16, 15, 4], [3, 18, 12, 11, 4, 16, 4, 0, 0, 0]])
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1, 0, 0, 0]])
MASK = np.array([[1] * 10, [1] * 7 + [0] * 3])
Write = Callable[..., Path]


@pytest.fixture(scope="module")
def tensorflow() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow")


def save(tensorflow: Any, prefix: Path, variables: Mapping[str, NDArray[Any]]) -> None:
    """Write variables under their names, as the first TensorFlow did."""
    names = sorted(variables)
    values = [tensorflow.constant(variables[name]) for name in names]
    tensorflow.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
    )


@pytest.fixture
def write_bert(tensorflow: Any, tmp_path: Path) -> Write:
    def write(changes: Mapping[str, Any] | None = None, name: str = "uncased_L-3", **config: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "bert_config.json").write_text(json.dumps({**reference.BERT, **config}))
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in reference.WORDS), encoding="utf-8")
        variables = {**reference.drawn(reference.bert_shapes()), **(changes or {})}
        kept = {name: value for name, value in variables.items() if value is not None}
        save(tensorflow, folder / "bert_model.ckpt", kept)
        return folder

    return write


@pytest.fixture
def gpt2(tensorflow: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "124M"
    folder.mkdir()
    (folder / "hparams.json").write_text(json.dumps(reference.GPT2))
    (folder / "encoder.json").write_text(json.dumps({token: n for n, token in enumerate(reference.TOKENS)}))
    merges = "".join(f"{first} {second}\n" for first, second in reference.MERGES)
    (folder / "vocab.bpe").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    (folder / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt"\nall_model_checkpoint_paths: "model.ckpt"\n'
    )
    save(tensorflow, folder / "model.ckpt", reference.drawn(reference.gpt2_shapes(), seed=1))
    return folder


def close(computed: torch.Tensor, expected: NDArray[Any]) -> None:
    difference = np.abs(computed.double().numpy() - expected).max()
    print(f"greatest difference {difference:.1e}, greatest value {np.abs(expected).max():.1f}")
    assert difference < 1e-5


def encoded(out: Path, ids: NDArray[Any], mask: NDArray[Any], segments: NDArray[Any] | None = None) -> torch.Tensor:
    """The states that `kind: pretrained` gives."""
    config = Config(name=str(out)).settled()
    encoder = config.build(Vocabulary(10, reference.PLACES, 0, 0, 0, 0), frozenset(["states"]))
    config.fill(encoder)
    given = None if segments is None else torch.from_numpy(segments)
    tokens = Tokens(torch.from_numpy(ids), torch.from_numpy(mask).bool(), given)
    return encoder.eval()(Batch({INPUT: tokens})).need("states")


@torch.no_grad()
def test_the_states_of_bert_are_those_of_its_formulas(write_bert: Write, tmp_path: Path) -> None:
    done = convert(write_bert(), tmp_path / "out")
    assert (done.format, done.kind, done.vocabulary) == ("tensorflow-bert", "bert", len(reference.WORDS))
    variables = reference.drawn(reference.bert_shapes())
    *expected, pooled = reference.bert_states(variables, IDS, SEGMENTS, MASK)
    real = MASK > 0
    model = AutoModel.from_pretrained(tmp_path / "out").eval()
    given = {"input_ids": IDS, "token_type_ids": SEGMENTS, "attention_mask": MASK}
    outputs = model(**{name: torch.from_numpy(value) for name, value in given.items()}, output_hidden_states=True)
    assert len(outputs.hidden_states) == len(expected) == reference.LAYERS + 1
    for ours, theirs in zip(outputs.hidden_states, expected, strict=True):
        close(ours[torch.from_numpy(real)], theirs[real])
    close(outputs.pooler_output, pooled)
    close(encoded(tmp_path / "out", IDS, MASK, SEGMENTS)[torch.from_numpy(real)], expected[-1][real])


@torch.no_grad()
def test_the_states_of_gpt2_are_those_of_its_formulas(gpt2: Path, tmp_path: Path) -> None:
    done = convert(gpt2, tmp_path / "out")
    assert (done.format, done.kind, done.vocabulary) == ("tensorflow-gpt2", "gpt2", len(reference.TOKENS))
    assert done.not_read == ()
    ids = np.random.default_rng(2).integers(0, len(reference.TOKENS), (3, reference.PLACES))
    expected = reference.gpt2_states(reference.drawn(reference.gpt2_shapes(), seed=1), ids)
    model = AutoModel.from_pretrained(tmp_path / "out").eval()
    close(model(input_ids=torch.from_numpy(ids)).last_hidden_state, expected)
    close(encoded(tmp_path / "out", ids, np.ones_like(ids)), expected)


def google_name(name: str) -> str:
    """Google's name of a tensor of transformers' BertModel."""
    name = f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    name = name.replace("_embeddings.weight", "_embeddings").replace(".weight", ".kernel")
    return re.sub(r"layer\.(\d+)", r"layer_\1", name).replace(".", "/")


@torch.no_grad()
def test_trained_weights_come_back_as_they_were(tensorflow: Any, tmp_path: Path) -> None:
    """Those of `default`, with all of its 30,522 words, written as Google would have."""
    trained, folder = Path(folder_of("default")), tmp_path / "minilm-uncased"
    model, tokenizer = AutoModel.from_pretrained(trained).eval(), AutoTokenizer.from_pretrained(trained)
    state = {google_name(name): value.numpy() for name, value in model.state_dict().items()}
    variables = {name: value.T if name.endswith("kernel") else value for name, value in state.items()}
    folder.mkdir()
    save(tensorflow, folder / "bert_model.ckpt", variables)
    settings = {name: value for name, value in model.config.to_dict().items() if name in reference.BERT}
    (folder / "bert_config.json").write_text(json.dumps(settings))
    words = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words), encoding="utf-8")
    assert convert(folder, tmp_path / "out").vocabulary == 30522
    again = AutoModel.from_pretrained(tmp_path / "out").eval()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    texts = [
        "The Café's gulls WAIT,\tdon't they?",
        "얼마나 기다려요?",
        "東京 2024 — ☃ [MASK]",
        "naïve Straße\u200d\u00a0x",
    ]
    for text in texts:
        ids = AutoTokenizer.from_pretrained(tmp_path / "out")(text, return_tensors="pt")
        assert ids["input_ids"].tolist() == tokenizer(text, return_tensors="pt")["input_ids"].tolist()
        assert torch.equal(again(**ids).last_hidden_state, model(**ids).last_hidden_state)


def test_every_value_is_that_of_the_checkpoint(write_bert: Write, tmp_path: Path) -> None:
    convert(write_bert(), tmp_path / "out")
    state = AutoModel.from_pretrained(tmp_path / "out").state_dict()
    values = {name: value for name, value in reference.drawn(reference.bert_shapes()).items() if "adam" not in name}
    theirs = sorted(float(value.sum()) for name, value in values.items() if name.startswith("bert/"))
    assert sorted(float(value.sum()) for value in state.values()) == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize(
    ("folder", "config", "settings", "words"),
    [
        ("uncased_L-3", {}, Settings(), ["the", "ferry", "##s", "e", "!", "[UNK]"]),
        ("cased_L-3", {}, Settings(), ["[UNK]", "Ferry", "##s", "é", "!", "가", "##나"]),
        ("korean", {"do_lower_case": False}, Settings(), ["[UNK]", "Ferry", "##s", "é", "!", "가", "##나"]),
        ("cased_L-3", {"do_lower_case": True}, Settings(), ["the", "ferry", "##s", "e", "!", "[UNK]"]),
        ("uncased", {}, Settings(cased=True), ["[UNK]", "Ferry", "##s", "é", "!", "가", "##나"]),
    ],
)
def test_berts_tokenizer_keeps_capitals_or_not(
    folder: str, config: dict[str, Any], settings: Settings, words: list[str], write_bert: Write, tmp_path: Path
) -> None:
    convert(write_bert(name=folder, **config), tmp_path / "out", settings)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer("The Ferrys é! 가나")["input_ids"]
    assert ids == [reference.WORDS.index(word) for word in ["[CLS]", *words, "[SEP]"]]
    ours = Config(name=str(tmp_path / "out")).own_tokenizer()
    assert ours.encode(["The Ferrys é! 가나"])[0] == ids[1:-1]
    assert tokenizer.model_max_length == reference.PLACES


def test_nothing_that_tells_of_capitals(write_bert: Write, tmp_path: Path) -> None:
    folder = write_bert(name="korean")
    line = refusal("import", folder, tmp_path / "out")
    assert line == f"{folder}: nothing tells whether its tokenizer keeps capitals; say --cased or --uncased"
    assert answer("import", folder, tmp_path / "out", "--uncased")["kind"] == "bert"


@pytest.mark.parametrize("words", [["the", " ferry"], ["hello", " thhe", " 가", "\n"], ["ferryferry", " ", " the"]])
def test_gpt2s_tokenizer_merges_as_openai_does(words: list[str], gpt2: Path, tmp_path: Path) -> None:
    convert(gpt2, tmp_path / "out")
    expected = [number for word in words for number in reference.gpt2_ids(word)]
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("".join(words))["input_ids"] == expected


def test_one_json_object_tells_what_was_written(write_bert: Write, tmp_path: Path) -> None:
    folder = write_bert()
    report = answer("import", folder, tmp_path / "out")
    shapes = reference.bert_shapes()
    read = {name: shape for name, shape in shapes.items() if name.startswith("bert/") and "/adam_" not in name}
    sizes = {"tensors": len(read), "parameters": sum(map(np.prod, read.values())), "vocabulary": len(reference.WORDS)}
    not_read = report.pop("not_read")
    assert report == {"out": str(tmp_path / "out"), "format": "tensorflow-bert", "kind": "bert", **sizes}
    assert {one["name"]: tuple(one["shape"]) for one in not_read} == {
        name: shape for name, shape in shapes.items() if name not in read
    }
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    shown = run("import", folder, tmp_path / "again")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert len(shown.stderr.splitlines()) == 2


def test_what_does_not_fit_is_listed_and_left_out_only_where_allowed(write_bert: Write, tmp_path: Path) -> None:
    changes = {"bert/pooler/dense/kernel": np.ones((3, 3), np.float32), "bert/pooler/dense/bias": None}
    folder = write_bert({**changes, "bert/gate": np.ones(3, np.float32)}, embedding_size=16)
    expected = [
        "unknown setting: embedding_size in bert_config.json",
        "unknown: bert/gate (3)",
        "another shape: bert/pooler/dense/kernel (3, 3), expected (16, 16)",
        "missing: bert/pooler/dense/bias (16)",
    ]
    refused = run("import", folder, tmp_path / "out")
    first, *lines = (line.removeprefix("error: ") for line in refused.stderr.splitlines())
    assert first == f"{folder}: 4 things do not fit; --allow-mismatch leaves out what does not fit"
    assert (refused.exit_code, lines) == (1, expected)
    assert not (tmp_path / "out").exists()
    allowed = run("import", folder, tmp_path / "out", "--allow-mismatch")
    assert allowed.exit_code == 0
    assert allowed.stderr.splitlines()[:4] == [f"left out, {line}" for line in expected]


def test_what_the_encoder_reads_may_not_be_left_out(write_bert: Write, tmp_path: Path) -> None:
    folder = write_bert({"bert/encoder/layer_1/output/dense/bias": None})
    line = refusal("import", folder, tmp_path / "out", "--allow-mismatch")
    lost = "missing: encoder.layer.1.output.dense.bias (16)"
    assert line == f"{folder}: does not fit ({lost}); the encoder cannot do without"
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_of_another_size_is_refused_with_both_numbers(write_bert: Write, tmp_path: Path) -> None:
    folder, known = write_bert(), len(reference.WORDS)
    text = (folder / "vocab.txt").read_text(encoding="utf-8")
    (folder / "vocab.txt").write_text(f"{text}new\n", encoding="utf-8")
    line = refusal("import", folder, tmp_path / "out")
    assert line.startswith(f"{folder}: its tokenizer knows {known + 1} tokens, its weights {known}; ")
    assert refusal("import", folder, tmp_path / "out", "--allow-mismatch") == line
    (folder / "vocab.txt").write_text(text[: text.rindex("##나")], encoding="utf-8")
    line = refusal("import", folder, tmp_path / "out")
    assert line.startswith(f"{folder}: its tokenizer knows {known - 1} tokens, its weights {known}; --allow-mismatch")
    assert answer("import", folder, tmp_path / "out", "--allow-mismatch")["vocabulary"] == known - 1


def test_gpt2s_vocabulary_must_fit_too(gpt2: Path, tmp_path: Path) -> None:
    known = len(reference.TOKENS)
    tokens = json.loads((gpt2 / "encoder.json").read_text())
    (gpt2 / "encoder.json").write_text(json.dumps({**tokens, "more": known}))
    line = refusal("import", gpt2, tmp_path / "out")
    assert line.startswith(f"{gpt2}: its tokenizer knows {known + 1} tokens, its weights {known}; ")


@pytest.mark.parametrize("file", ["bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"])
@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "changed"])
def test_a_damaged_checkpoint_is_refused(file: str, damage: str, write_bert: Write, tmp_path: Path) -> None:
    folder = write_bert()
    content = (folder / file).read_bytes()
    spoilt = {"cut": content[: len(content) // 2], "empty": b"", "changed": b"\xff" * 8 + content[8:]}
    if damage == "gone":
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(spoilt[damage])
    line = refusal("import", folder, tmp_path / "out")
    assert line.startswith(f"{folder}")
    assert not (tmp_path / "out").exists()
