"""A folder of sentence-transformers gives the vectors and scores that sentence-transformers gives, or is refused."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.encoders.tiny_backbones import save
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.model import Ranker
from twofold.model.load import load, load_ranker

TEXTS = [
    "The ferry leaves at Seven",
    "",
    "OK 안녕하세요, gulls!",
    "nobody waits for it, except the gulls " * 9,
    " a  b ",
]
PROMPTS = {"query": "find: ", "document": "the text:", "other": "X"}
LIMIT = 24


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="sentence_transformers|transformers|torch")
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backbones")


def made(saved: Path, folder: Path, family: str, *modules: Any, **settings: Any) -> Any:
    """A model of sentence-transformers over a small network, written to a folder, and as that is read again."""
    theirs = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    if not (saved / family).exists():
        save(family, saved / family)
    network = Transformer(str(saved / family))
    network.tokenizer.pad_token = network.tokenizer.pad_token or network.tokenizer.eos_token
    network.max_seq_length = LIMIT
    pooling = Pooling(16, settings.pop("pooling", "mean"))
    theirs.SentenceTransformer(modules=[network, pooling, *modules], device="cpu", **settings).save(str(folder))
    return theirs.SentenceTransformer(str(folder), device="cpu")


def dense(*sizes: int, activation: nn.Module | None = None, bias: bool = True) -> list[Any]:
    from sentence_transformers.sentence_transformer.modules import Dense

    torch.manual_seed(1)
    function = activation or nn.Tanh()
    return [Dense(a, b, bias, function) for a, b in pairwise(sizes)]


def normalize() -> Any:
    from sentence_transformers.sentence_transformer.modules import Normalize

    return Normalize()


def assert_same(ranker: Ranker, theirs: Any, texts: list[str] | None = None) -> None:
    """The vectors of both sides and all scores, as queries and documents are read there."""
    texts = texts or TEXTS
    queries, documents = theirs.encode_query(texts), theirs.encode_document(texts)
    embeddings = ranker.embed_contexts(texts).vectors[:, 0].numpy(), ranker.embed_candidates(texts).single.numpy()
    np.testing.assert_allclose(embeddings[0], queries, atol=1e-5)
    np.testing.assert_allclose(embeddings[1], documents, atol=1e-5)
    scores = ranker.score(texts, ranker.prepare(texts)).numpy()
    np.testing.assert_allclose(scores, theirs.similarity(queries, documents).numpy(), atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5"])
@pytest.mark.parametrize("unit", [True, False])
def test_vectors_and_scores_are_those_of_sentence_transformers(
    family: str, unit: bool, saved: Path, tmp_path: Path
) -> None:
    modules = [*dense(16, 12, 8), *([normalize()] if unit else [])]
    theirs = made(saved, tmp_path / "s", family, *modules, prompts=PROMPTS)
    ranker = load_ranker(tmp_path / "s")
    assert_same(ranker, theirs)
    ranker.save_pretrained(tmp_path / "again")
    again = load_ranker(tmp_path / "again")
    assert_same(again, theirs)
    assert again.fingerprint() == ranker.fingerprint() == load_ranker(tmp_path / "s").fingerprint()
    made(saved, tmp_path / "other", family, *modules[:1], *modules[2:], prompts=PROMPTS)
    assert load_ranker(tmp_path / "other").fingerprint() != ranker.fingerprint()


@pytest.mark.parametrize("mode", ["cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean"])
def test_every_pooling_gives_their_vectors(mode: str, saved: Path, tmp_path: Path) -> None:
    theirs = made(saved, tmp_path / "s", "bert", pooling=mode)
    assert_same(load_ranker(tmp_path / "s"), theirs)


@pytest.mark.parametrize("name", ["Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "ELU", "LeakyReLU"])
def test_every_activation_gives_their_vectors(name: str, saved: Path, tmp_path: Path) -> None:
    layers = dense(16, 16, activation=getattr(nn, name)(), bias=name != "ReLU")
    theirs = made(saved, tmp_path / "s", "bert", *layers)
    assert_same(load_ranker(tmp_path / "s"), theirs)


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({}, None),
        ({"query": "a: "}, None),
        ({"passage": "p: ", "corpus": "c: "}, None),
        ({"corpus": "c: ", "document": ""}, None),
        ({"mine": "m: "}, "mine"),
        ({"mine": "m: ", "query": ""}, "mine"),
        ({"mine": "m: ", "passage": "p:"}, "mine"),
    ],
)
def test_prompts_are_chosen_as_queries_and_documents_are(
    prompts: dict[str, str], default: str | None, saved: Path, tmp_path: Path
) -> None:
    theirs = made(saved, tmp_path / "s", "roberta", prompts=prompts, default_prompt_name=default)
    ranker = load_ranker(tmp_path / "s")
    assert_same(ranker, theirs, TEXTS if prompts else [*TEXTS, "a"])


def test_the_dot_product_is_the_score_where_the_folder_says_so(saved: Path, tmp_path: Path) -> None:
    theirs = made(saved, tmp_path / "s", "bert", similarity_fn_name="dot")
    assert_same(load_ranker(tmp_path / "s"), theirs)


def test_do_lower_case_is_done_where_the_tokenizer_does_not(saved: Path, tmp_path: Path) -> None:
    made(saved, tmp_path / "s", "roberta")
    change(tmp_path / "s" / "sentence_bert_config.json", do_lower_case=True)
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(tmp_path / "s"), device="cpu")
    ranker = load_ranker(tmp_path / "s")
    assert_same(ranker, theirs)
    upper, lower = ranker.embed_candidates(["THE Gulls", "the gulls"]).single
    torch.testing.assert_close(upper, lower)


def test_turns_keep_the_newest_and_a_single_text_its_beginning(saved: Path, tmp_path: Path) -> None:
    made(saved, tmp_path / "s", "bert")
    ranker = load_ranker(tmp_path / "s")
    long = "gulls " * 40
    same, alone = ranker.embed_contexts([f"{long}a", [f"{long}b"]]).vectors
    torch.testing.assert_close(same, alone)  # one turn is a single text
    whole, begun, turns, newest = ranker.embed_contexts([f"{long}a", f"{long}b", [long, "a"], [long, "b"]]).vectors
    torch.testing.assert_close(whole, begun)
    assert (turns - newest).abs().max() > 1e-3


@pytest.mark.parametrize("unit", [True, False])
def test_an_index_finds_what_the_ranker_ranks(unit: bool, saved: Path, tmp_path: Path) -> None:
    made(saved, tmp_path / "s", "bert", *dense(16, 12), *([normalize()] if unit else []), prompts=PROMPTS)
    ranker = load_ranker(tmp_path / "s")
    texts = [f"{word} {number}" for number in range(40) for word in ("gulls", "the ferry", "first second")]
    Index.build(tmp_path / "index", ranker, texts)
    with Index(tmp_path / "index", ranker) as index:
        for context in ("The gulls 7", "ferry"):
            hits, ranked = index.search(context, 5), ranker.rank(context, texts, 5)
            assert hits.exact
            np.testing.assert_allclose([hit.score for hit in hits], [hit.score for hit in ranked], atol=2e-3)


def test_the_network_may_lie_in_a_folder_of_its_own(saved: Path, tmp_path: Path) -> None:
    theirs = made(saved, tmp_path / "s", "bert", *dense(16, 8))
    folder = tmp_path / "s"
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [*folder.glob("*token*.json"), folder / "config.json", folder / "model.safetensors"]:
        file.rename(inner / file.name)
    (folder / "sentence_bert_config.json").rename(inner / "sentence_bert_config.json")
    lines = json.loads((folder / "modules.json").read_text())
    lines[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(lines))
    assert_same(load_ranker(folder), theirs)


# --- what is refused ---


@pytest.fixture(scope="module")
def whole(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "s"
    made(saved, folder, "bert", *dense(16, 12, 8), normalize(), prompts=PROMPTS)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to spoil: Dense in 2_Dense and 3_Dense, Normalize in 4_Normalize."""
    return Path(shutil.copytree(whole, tmp_path / "spoilt"))


def change(file: Path, **values: Any) -> None:
    given = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**given, **values}))


def refused(folder: Path) -> str:
    with pytest.raises(TwofoldError) as caught:
        load(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line
    return line


@pytest.mark.parametrize(
    ("file", "values", "said"),
    [
        ("2_Dense", {"activation_function": "torch.nn.modules.activation.Softmax"}, "activation torch.nn.modules.act"),
        ("2_Dense", {"activation_function": "os.system"}, "Dense in 2_Dense with the activation os.system; known are"),
        ("2_Dense", {"activation_function": "evil.Tanh"}, "Dense in 2_Dense with the activation evil.Tanh; known are"),
        ("2_Dense", {"use_residual": True}, "Dense in 2_Dense with use_residual"),
        ("2_Dense", {"in_features": 1e9}, "Dense in 2_Dense without in_features and out_features"),
        ("2_Dense", {"out_features": 10**12}, "Dense in 2_Dense without in_features and out_features"),
        ("2_Dense", {"module_input_name": "token_embeddings"}, "Dense in 2_Dense of token_embeddings"),
        ("2_Dense", {"in_features": 17}, "Dense in 2_Dense reads vectors of width 17, and is given 16"),
        ("3_Dense", {"in_features": 2**30}, "Dense in 3_Dense reads vectors of width 1073741824, and is given 12"),
        ("3_Dense", {"out_features": 2**30}, "holds linear.bias (8,); linear.weight (8, 12), and its config.json says"),
        ("3_Dense", {"bias": False}, "holds linear.bias (8,); linear.weight (8, 12), and its config.json says"),
        ("1_Pooling", {"embedding_dimension": 8}, "Pooling in 1_Pooling reads vectors of width 8, and is given 16"),
        ("1_Pooling", {"pooling_mode": ["cls", "mean"]}, "Pooling in 1_Pooling by cls and mean; known is one of"),
        ("1_Pooling", {"include_prompt": False}, "Pooling in 1_Pooling with include_prompt: false"),
        ("4_Normalize", {"module_input_name": "token_embeddings"}, "Normalize in 4_Normalize of token_embeddings"),
    ],
)
def test_a_module_that_does_something_else_is_refused_by_name_and_place(
    file: str, values: dict[str, Any], said: str, folder: Path
) -> None:
    change(folder / file / "config.json", **values)
    assert said in refused(folder)


@pytest.mark.parametrize(
    ("file", "values", "said"),
    [
        ("config_sentence_transformers.json", {"similarity_fn_name": "euclidean"}, "the similarity euclidean; known"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "manhattan"}, "the similarity manhattan; known"),
        ("config_sentence_transformers.json", {"truncate_dim": 4}, "truncate_dim 4, which cuts vectors"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type SparseEncoder"),
        ("config_sentence_transformers.json", {"prompts": {"query": 7}}, "prompts that are not texts by name"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "prompts that are not texts by name"),
        ("config_sentence_transformers.json", {"default_prompt_name": "no"}, "the default prompt 'no', which is not"),
        ("config_sentence_transformers.json", {"prompts": {"query": "[SEP] "}}, "holds the special token [SEP]"),
        ("config_sentence_transformers.json", {"default_prompt_name": ["a"]}, "the default prompt '['a']', which is"),
        ("sentence_bert_config.json", {"max_seq_length": 2}, "max_seq_length 2, too few tokens for a text"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task fill-mask"),
        ("sentence_bert_config.json", {"query_length": 7}, "setting: query_length"),
        ("sentence_bert_config.json", {"tokenizer_args": {"x": 1}}, "setting: tokenizer_args"),
        ("tokenizer_config.json", {"truncation_side": "left"}, "truncation_side left"),
    ],
)
def test_a_setting_that_changes_vectors_or_scores_is_refused_by_name(
    file: str, values: dict[str, Any], said: str, folder: Path
) -> None:
    change(folder / file, **values)
    assert said in refused(folder)


def with_types(folder: Path, **types: str) -> None:
    """Change what modules are called, by the folders they are in."""
    lines = json.loads((folder / "modules.json").read_text())
    for line in lines:
        line["type"] = types.get(f"at_{line['path']}", line["type"])
    (folder / "modules.json").write_text(json.dumps(lines))


@pytest.mark.parametrize("kind", ["LayerNorm", "WeightedLayerPooling", "CNN", "LSTM", "WordWeights", "Router"])
def test_another_kind_of_module_is_refused_by_name_and_place(kind: str, folder: Path) -> None:
    with_types(folder, at_2_Dense=f"sentence_transformers.models.{kind}")
    assert f"(module: {kind} in 2_Dense)" in refused(folder)


@pytest.mark.parametrize("kind", ["BoW", "StaticEmbedding", "Asym", "CLIPModel", "evil.Transformer"])
def test_a_folder_that_begins_with_another_module_is_refused(kind: str, folder: Path) -> None:
    lines = json.loads((folder / "modules.json").read_text())
    lines[0]["type"] = kind if "." in kind else f"sentence_transformers.models.{kind}"
    (folder / "modules.json").write_text(json.dumps(lines))
    assert f"must begin with its one Transformer, and has {kind}, Pooling" in refused(folder)


def test_a_module_from_elsewhere_is_refused_and_never_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "evil_module.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass Dense: pass\n")
    monkeypatch.syspath_prepend(str(folder))
    with_types(folder, at_2_Dense="evil_module.Dense")
    assert "evil_module.Dense in 2_Dense, whose code is not run" in refused(folder)
    assert not (folder / "ran").exists()


def test_modules_in_an_order_that_is_not_theirs_are_refused(folder: Path) -> None:
    lines = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([lines[0], lines[1], lines[4], lines[2], lines[3]]))
    assert "Normalize in 4_Normalize, which stands before Dense in 2_Dense" in refused(folder)
    (folder / "modules.json").write_text(json.dumps([lines[0], lines[2], lines[1]]))
    assert "Dense in 2_Dense, which stands before Pooling in 1_Pooling" in refused(folder)
    (folder / "modules.json").write_text(json.dumps([lines[0], lines[2]]))
    assert "no Pooling, so that nothing tells how states are reduced" in refused(folder)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "[1, 2]", '{"a": 1, "a": 2}', '{"a": ' + "9" * 5000 + "}"]
)
@pytest.mark.parametrize("file", ["1_Pooling/config.json", "2_Dense/config.json", "config_sentence_transformers.json"])
def test_settings_that_cannot_be_read_are_one_line(file: str, text: str, folder: Path) -> None:
    (folder / file).write_text(text)
    assert refused(folder).startswith(f"{folder / file}: not ")


def test_modules_that_are_nested_deep_are_one_line(folder: Path) -> None:
    (folder / "modules.json").write_text("[" * 100_000)
    assert refused(folder).startswith(f"{folder}/modules.json: not a list of modules (nested too deep)")


@pytest.mark.parametrize("file", ["1_Pooling/config.json", "2_Dense/config.json"])
def test_a_module_without_its_settings_is_refused(file: str, folder: Path) -> None:
    (folder / file).unlink()
    assert f"in {file.partition('/')[0]} without" in refused(folder)


def test_pickled_weights_of_a_dense_layer_are_refused_and_imported(folder: Path, tmp_path: Path) -> None:
    from twofold.convert import convert

    before = load_ranker(folder)
    for path in (folder / "2_Dense", folder / "3_Dense"):
        torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
        (path / "model.safetensors").unlink()
    line = refused(folder)
    assert "has no 2_Dense/model.safetensors (pytorch_model.bin is never read); `twofold import` writes it" in line
    assert convert(folder, tmp_path / "out").not_read == ()
    after = load_ranker(tmp_path / "out")
    assert after.contexts.config.prompts() == (PROMPTS["query"],)
    torch.testing.assert_close(after.embed_candidates(TEXTS).single, before.embed_candidates(TEXTS).single)


def test_dense_weights_that_are_not_there_or_cut_off_are_one_line(folder: Path) -> None:
    path = folder / "2_Dense" / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    assert refused(folder).startswith(f"{path}: damaged (")
    save_file({"linear.weight": torch.zeros(12, 16), "extra": torch.zeros(1)}, path)
    assert "holds extra (1,); linear.weight (12, 16), and its config.json says" in refused(folder)
    path.unlink()
    assert "has no 2_Dense/model.safetensors; `twofold import` writes it" in refused(folder)


def test_cls_of_a_causal_network_is_refused(saved: Path, tmp_path: Path) -> None:
    made(saved, tmp_path / "s", "gpt2", pooling="cls")
    assert "Pooling by cls of a causal network" in refused(tmp_path / "s")
