"""Models that are none or damaged, what is imported, and odd values of every option."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

from tests.attacks.inputs import Case, Make, all_of, fifo, folder, link, nothing, put

ROWS = "STAGE/rows.jsonl"


class Code:
    """A pickle of it runs a command when it is read."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("RAN"),))


def header(claimed: int, content: bytes = b"{}") -> bytes:
    """The start of a safetensors file, and how long it claims its header is."""
    return struct.pack("<Q", claimed) + content


def tensors(about: dict[str, Any], data: bytes = b"") -> bytes:
    content = json.dumps(about).encode()
    return header(len(content), content) + data


def config(**changes: Any) -> Make:
    """The model's config.json with other values; None takes one out."""

    def make(here: Path) -> None:
        path = here / "m/config.json"
        content = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return make


def settings(**changes: Any) -> Make:
    """Changes the model's own settings there."""

    def make(here: Path) -> None:
        path = here / "m/config.json"
        content = json.loads(path.read_text())
        content["model"] |= changes
        path.write_text(json.dumps(content))

    return make


def part(name: str, **changes: Any) -> Make:
    """Changes the settings of one of its parts."""

    def make(here: Path) -> None:
        path = here / "m/config.json"
        content = json.loads(path.read_text())
        content["model"][name] |= changes
        path.write_text(json.dumps(content))

    return make


def encoder(**changes: Any) -> Make:
    return part("encoder", **changes)


def gone(name: str) -> Make:
    return lambda here: (here / name).unlink()


WEIGHTS, CONFIG, TOKENIZER = "m/model.safetensors", "m/config.json", "m/tokenizer.input.json"
HUGE = {"w": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}}
DAMAGE: dict[str, Make] = {
    "no weights": gone(WEIGHTS),
    "weights that are empty": put(WEIGHTS, b""),
    "weights that claim 2^60 bytes": put(WEIGHTS, header(2**60)),
    "weights that claim 2^63 bytes": put(WEIGHTS, header(2**63)),
    "weights with no header": put(WEIGHTS, header(2)),
    "weights with a header of text": put(WEIGHTS, header(9, b"not JSON!")),
    "weights of 2^60 numbers": put(WEIGHTS, tensors(HUGE)),
    "weights that are a pickle": put(WEIGHTS, pickle.dumps(Code())),
    "weights that are numpy's": put(WEIGHTS, b"\x93NUMPY\x01\x00"),
    "weights of zeros": put(WEIGHTS, bytes(10_000)),
    "weights that are a folder": all_of(gone(WEIGHTS), folder(WEIGHTS)),
    "weights that are a pipe": all_of(gone(WEIGHTS), fifo(WEIGHTS)),
    "weights without an end": all_of(gone(WEIGHTS), link(WEIGHTS, "/dev/zero")),
    "no config": gone(CONFIG),
    "a config that is empty": put(CONFIG, ""),
    "a config that is a list": put(CONFIG, "[]"),
    "a config of text": put(CONFIG, "model: x\n"),
    "a config nested deep": put(CONFIG, "[" * 100_000 + "]" * 100_000),
    "a config in UTF-16": put(CONFIG, '{"a": 1}'.encode("utf-16")),
    "a config that is a pipe": all_of(gone(CONFIG), fifo(CONFIG)),
    "a config without an end": all_of(gone(CONFIG), link(CONFIG, "/dev/zero")),
    "no format": config(format=None),
    "a format to come": config(format=999),
    "a format of text": config(format="1"),
    "a format from before": config(format=1, family="text"),
    "a key nobody knows": config(nonsense="x"),
    "checksums of code that are a list": config(code_sha256=[]),
    "no model": config(model=None),
    "a model that is a list": config(model=[]),
    "no tokenizers": config(tokenizers=None),
    "a tokenizer outside": config(tokenizers={"input": "../../x.json", "main": "../../x.json"}),
    "a tokenizer that is a number": config(tokenizers={"input": 1}),
    "a checksum that is a list": config(sha256=[]),
    "a wrong checksum": config(sha256="0" * 64),
    "checksums of text": config(tokenizer_sha256="x"),
    "a setting nobody knows": settings(nonsense=1),
    "a limit below 0": part("input", max_tokens=-1),
    "an input that is a number": settings(input=7),
    "an input nobody knows": part("input", kind="nonsense"),
    "an input from outside": part("input", kind="os.path"),
    "decoders that are a list": settings(tasks=[]),
    "no decoder": settings(tasks={}),
    "a decoder without an output": settings(tasks={"main": {"decoder": {"kind": "attention_rnn"}}}),
    "losses that are a number": settings(losses=7),
    "an encoder that is a number": settings(encoder=7),
    "an encoder from outside": encoder(kind="os.path"),
    "an encoder of a path": encoder(kind="../../x"),
    "an encoder 10^12 wide": encoder(width=10**12),
    "an encoder of 10^9 layers": encoder(layers=10**9),
    "an encoder of width -1": encoder(width=-1),
    "an encoder of width 1.5": encoder(width=1.5),
    "an encoder of another width": encoder(width=24),
    "no tokenizer": gone(TOKENIZER),
    "a tokenizer of text": put(TOKENIZER, "no tokenizer\n"),
    "a tokenizer that is empty": put(TOKENIZER, ""),
    "a tokenizer nested deep": put(TOKENIZER, '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "a tokenizer of another kind": put(TOKENIZER, '{"version": "1.0", "model": {"type": "Nonsense"}}'),
    "a tokenizer that is a pipe": all_of(gone(TOKENIZER), fifo(TOKENIZER)),
}
DAMAGED = [
    Case(f"model, {name}", make, ("predict", "HERE/m", "one"), "HERE/m", copies=("text", "m"))
    for name, make in DAMAGE.items()
]
DAMAGED += [
    Case(
        f"model without checksums, {name}",
        all_of(config(tokenizer_sha256=None), DAMAGE[name]),
        ("predict", "HERE/m", "one"),
        "HERE/m",
        copies=("text", "m"),
    )
    for name in ("a tokenizer of text", "a tokenizer nested deep", "a tokenizer of another kind")
]
PLACES = ["", ".", "HERE/none", "HERE", "HERE/x", "HERE/x/y", "x" * 5000, "a\0b", "../../../etc", "STAGE/bi.index"]
PLACES += ["\x1b[31m", "STAGE/rows.jsonl", "https://example.org/m", "STAGE/run/checkpoints"]


def told(place: str) -> str:
    """Part of a name that an error must hold."""
    if "\0" in place:
        return "zero byte"
    return place[:20].strip("\x1b").removeprefix("https:/")


NAMED = [
    Case(f"{command} {place[:20]!r}", put("x", "x"), (command, place, *rest), told(place), 2 if "\0" in place else 1)
    for place in PLACES
    for command, rest in {
        "predict": ("one",),
        "evaluate": (ROWS,),
        "rank": ("one", "--candidates", "STAGE/candidates.jsonl"),
    }.items()
]
PREDICT = ("predict", "STAGE/text", "one")
VALUES: dict[str, list[tuple[str, int]]] = {
    "--beam": [("0", 1), ("-1", 1), ("x", 2), ("", 2), ("1.5", 2), (str(10**30), 1)],
    "--n-best": [("0", 1), ("-1", 1), ("2", 1), (str(10**30), 1)],
    "--length-penalty": [("nan", 1), ("inf", 1), ("x", 2)],
    "--no-repeat": [("-1", 1), ("x", 2)],
    "--max-length": [("0", 1), ("-1", 1), ("x", 2)],
    "--temperature": [("0", 1), ("-1", 1), ("nan", 1), ("inf", 1), ("x", 2)],
    "--top-k": [("-1", 1), ("x", 2)],
    "--top-p": [("0", 1), ("1.1", 1), ("nan", 1), ("-1", 1)],
    "--seed": [("-1", 1), (str(2**64), 1), (str(10**30), 1), ("x", 2), ("1.5", 2)],
    "--device": [("x", 1), ("", 1), ("meta", 1), ("cuda:99", 1), ("cpu; ls", 1), ("xla", 1)],
    "--decoder": [("x", 1), ("", 1), ("main.x", 1), ("\x1b[31m", 1)],
    "--file": [("", 1), ("HERE", 1), ("HERE/none", 1), ("a\0b", 2), ("x" * 5000, 1)],
    "--plot": [("", 2), ("HERE/a.doc", 1), ("HERE/a", 1), ("HERE", 1), ("HERE/a\0.png", 2)],
    "--conllu": [("HERE/a.conllu", 1), ("", 2)],
    "--masks": [("HERE/m", 1)],
    "--prefix": [("x", 1)],
    "--images": [("HERE", 1)],
    "--nonsense": [("1", 2)],
}


def says_of(option: str, value: str, status: int) -> str:
    """Text that an error must hold: the option as Python calls it, or as it was given."""
    if "\0" in value:
        return "zero byte"
    if option in ("--device", "--file", "--plot") and status == 1:
        return value[:20]
    return option if status == 2 else option.strip("-").replace("-", "_")


SAMPLED = ("--temperature", "--top-k", "--top-p", "--seed")
OPTIONS = [
    Case(
        f"predict {option} {value[:12]!r}",
        nothing,
        (*PREDICT, *(["--sample"] if option in SAMPLED else []), option, value),
        says_of(option, value, status),
        status,
        ("m",) if option == "--masks" else (),
    )
    for option, values in VALUES.items()
    for value, status in values
]
TEXTS: dict[str, tuple[list[str], str, int]] = {
    "nothing": ([], "INPUT", 2),
    "an empty text": ([""], "input 1", 1),
    "blanks": ([" \t\n"], "input 1", 1),
    "half a character": (["\udcff"], "input 1", 1),
    "only control characters": (["\x07\x08"], "input 1", 1),
    "two for --stream": (["one", "two", "--stream"], "--stream", 2),
    "--stream with --json": (["one", "--stream", "--json"], "--stream", 2),
    "zero bytes in words": (["on\0e"], "zero byte", 2),
    "letters nobody knows": (["𒀀𒀁"], "", 0),
    "a hundred thousand letters": (["x" * 100_000], "", 0),
    "an injection": (["one'; DROP TABLE x; --"], "", 0),
    "something like an option": (["--", "--beam"], "", 0),
}
GIVEN = [
    Case(f"predict, {name}", nothing, ("predict", "STAGE/text", *arguments), says, status)
    for name, (arguments, says, status) in TEXTS.items()
]
GIVEN += [
    Case("predict by a ranker", nothing, ("predict", "STAGE/bi", "one"), "STAGE/bi"),
    Case("rank by a writer", nothing, ("rank", "STAGE/text", "one", "--candidates", ROWS), "STAGE/text"),
    Case("rank without candidates", nothing, ("rank", "STAGE/bi", "one"), "--candidates", 2),
    Case("rank -k 0", nothing, ("rank", "STAGE/bi", "a", "--candidates", ROWS, "-k", "0"), "-k", 2),
    Case(
        "rank -k 10^30",
        nothing,
        ("rank", "STAGE/bi", "a", "--candidates", "STAGE/candidates.jsonl", "-k", str(10**30)),
        "n0",
        0,
    ),
    Case("evaluate --among 1", nothing, ("evaluate", "STAGE/bi", "STAGE/pairs.jsonl", "--among", "1"), "--among", 2),
    Case(
        "evaluate --among 10^30",
        nothing,
        ("evaluate", "STAGE/bi", "STAGE/pairs.jsonl", "--among", str(10**30)),
        "among",
    ),
    Case("evaluate --among of texts", nothing, ("evaluate", "STAGE/text", ROWS, "--among", "3"), "--among"),
    Case("evaluate --beam of a ranker", nothing, ("evaluate", "STAGE/bi", ROWS, "--beam", "3"), "--beam"),
    Case("evaluate --form x", nothing, ("evaluate", "STAGE/bi", ROWS, "--form", "x"), "--form", 2),
    Case("evaluate another form", nothing, ("evaluate", "STAGE/bi", ROWS, "--form", "convai2"), ROWS),
    Case("evaluate the other form", nothing, ("evaluate", "STAGE/bi", ROWS, "--form", "ubuntu_v2"), ROWS),
    Case(
        "evaluate --corpus of pairs", nothing, ("evaluate", "STAGE/bi", ROWS, "--corpus", "STAGE/pairs.jsonl"), "STAGE"
    ),
    Case("a command nobody knows", nothing, ("nonsense",), "nonsense", 2),
    Case("an option nobody knows", nothing, ("--nonsense",), "--nonsense", 2),
    Case("list of something", nothing, ("list", "x"), "x", 2),
    Case("demo of something", nothing, ("demo", "x"), "x", 2),
    Case("demo --out is a file", put("x", "mine"), ("demo", "--out", "HERE/x"), "HERE/x"),
    Case("demo --out is empty", nothing, ("demo", "--out", ""), "--out", 2),
    Case("demo --out zero byte", nothing, ("demo", "--out", "HERE/a\0b"), "zero byte", 2),
]
BERT = json.dumps({"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1})
BIN = put("m/pytorch_model.bin", pickle.dumps(Code()))
IMPORTS: dict[str, Make] = {
    "nothing": nothing,
    "an empty folder": folder("m"),
    "a file": put("m", "x"),
    "a pickle that runs code": all_of(put("m/config.json", BERT), BIN, put("m/vocab.txt", "[UNK]\na\n")),
    "a pickle alone": BIN,
    "text for weights": all_of(put("m/config.json", BERT), put("m/pytorch_model.bin", "x"), put("m/vocab.txt", "a\n")),
    "safetensors of 2^60": all_of(put("m/config.json", BERT), put("m/model.safetensors", header(2**60))),
    "a config of text": all_of(put("m/config.json", "x"), BIN),
    "a config nested deep": all_of(put("m/config.json", "[" * 100_000), BIN),
    "a config of another kind": all_of(put("m/config.json", '{"model_type": "x"}'), BIN),
    "a config of a path": all_of(put("m/config.json", '{"model_type": "../../x"}'), BIN),
    "a config of code": all_of(put("m/config.json", '{"model_type": "x", "auto_map": {"AutoModel": "m.M"}}'), BIN),
    "a checkpoint of text": all_of(put("m/bert_config.json", BERT), put("m/bert_model.ckpt.index", "x")),
    "modules of text": put("m/modules.json", "x"),
    "modules that lead up": put("m/modules.json", '[{"idx": 0, "path": "../x", "type": "a.Transformer"}]'),
    "modules of numbers": put("m/modules.json", '[{"idx": "x", "path": 1, "type": 2}]'),
    "no modules": put("m/modules.json", "[]"),
    "a module of code": put("m/modules.json", '[{"idx": 0, "path": "", "type": "os.system"}]'),
}
IMPORTED = [Case(f"import {name}", make, ("import", "HERE/m", "HERE/out"), "HERE/m") for name, make in IMPORTS.items()]
IMPORTED += [
    Case("import of no name", nothing, ("import", "", "HERE/out"), "SOURCE", 2),
    Case("import of a zero byte", nothing, ("import", "HERE/a\0b", "HERE/out"), "zero byte", 2),
    Case("import onto a file", put("x", "mine"), ("import", "STAGE/text", "HERE/x"), "HERE/x"),
    Case("import of an unknown kind", nothing, ("import", "STAGE/text", "HERE/x", "--kind", "x"), "--kind", 2),
    Case("import of a model", nothing, ("import", "STAGE/text", "HERE/x"), "STAGE/text"),
]
MODELS = {"damaged models": DAMAGED, "no models": NAMED, "options": OPTIONS, "texts": GIVEN, "imports": IMPORTED}
