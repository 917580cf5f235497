"""Recipes that are none, settings of every wrong type and size, and changes on the command line that make no sense."""

from __future__ import annotations

from tests.attacks.inputs import Case, Make, all_of, fifo, folder, link, nothing, put
from twofold.recipe.file import to_yaml

OUT = ("--out", "HERE/out")
PLACE = "HERE/recipe.yaml"


def written(name: str, content: str | bytes, says: str = PLACE, most: int = 1) -> Case:
    """A recipe file of this content."""
    return Case(f"recipe, {name}", put("recipe.yaml", content), ("train", PLACE, *OUT), says, most=most)


def named(name: str, make: Make, recipe: str, says: str) -> Case:
    """A recipe that is no file which could be read."""
    return Case(f"recipe, {name}", make, ("train", recipe, *OUT), says)


GOOD = """\
data: {train: STAGE}
input: {max_tokens: 30, tokenizer: {size: 90}}
output: {max_tokens: 30}
encoder: {kind: rnn, embedding: 8, width: 12}
decoder: {kind: rnn, embedding: 8, width: 12}
"""
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MAPPING_LAUGHS = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(10))}}}\n" for n in range(1, 12)
)
FILES = [
    written("empty", ""),
    written("only a comment", "# nothing\n"),
    written("null", "~\n"),
    written("a list", "- data\n- encoder\n"),
    written("a number", "17\n"),
    written("a tab before a key", "data:\n\ttrain: x\n", f"{PLACE}:2: not YAML"),
    written("zero bytes", b"data: {train: \x00}\n"),
    written("UTF-16", "data: {train: x}\n".encode("utf-16")),
    written("Latin-1", "data: {train: Café}\n".encode("latin-1")),
    written("only a byte order mark", b"\xef\xbb\xbf"),
    written("an escape sequence", "data: {train: \x1b[31m}\n"),
    written("an open quote", 'data: {train: "x}\n'),
    written("an open bracket", "data: {train: [x\n"),
    written("a list that contains itself", "data: &a [*a]\n"),
    written("a mapping that contains itself", "data: &a {train: *a}\n"),
    written("an alias of nothing", "data: *none\n"),
    written("a billion laughs", LAUGHS, f"{PLACE}: more than"),
    written("a billion laughs in mappings", MAPPING_LAUGHS, f"{PLACE}: more than"),
    written(
        "a billion laughs in train.learning_rate_multipliers",
        MAPPING_LAUGHS + "train: {learning_rate_multipliers: *a11}\n",
        f"{PLACE}: more than",
    ),
    written("a tag that runs code", "data: !!python/object/apply:os.system ['touch HERE-ran']\n", f"{PLACE}:1"),
    written("a tag that makes a module", "data: !!python/module:os\n", f"{PLACE}:1"),
    written("a tag that nobody knows", "data: !mine {train: x}\n", f"{PLACE}:1"),
    written("bytes", "data: !!binary aGVsbG8=\nencoder: {kind: rnn}\ndecoder: {kind: rnn}\n", "recipe.data"),
    written("broken bytes", f"{GOOD}start: !!binary '####'\n", "recipe.start"),
    written("a set", "data: !!set {a, b}\nencoder: {kind: rnn}\ndecoder: {kind: rnn}\n", "recipe.data"),
    written("a date", "data: 2026-01-01\nencoder: {kind: rnn}\ndecoder: {kind: rnn}\n", "recipe.data"),
    written("a date that is none", "data: 2026-13-41\nencoder: {kind: rnn}\ndecoder: {kind: rnn}\n"),
    written("a key twice", "data: {train: x}\ndata: {train: y}\n", f"{PLACE}:2"),
    written("two documents", "data: {train: x}\n---\nencoder: {kind: rnn}\n", f"{PLACE}:2"),
    written("brackets ten thousand deep", "data: " + "[" * 10_000 + "]" * 10_000 + "\n"),
    written("keys three hundred deep", GOOD + "".join(f"{' ' * n}k:\n" for n in range(200)) + " " * 200 + "x\n", "'k'"),
    written("a number of ten thousand digits", f"seed: {'9' * 10_000}\n"),
    written("a list as a key", "? [a, b]\n: 1\n"),
    written("a mapping as a key", "? {a: b}\n: 1\n"),
    written("a number as a key", f"{GOOD}1: 2\n", "recipe has no '1'"),
    written("null as a key", f"{GOOD}~: 2\n", "recipe has no 'None'"),
    written("true as a key", f"{GOOD}true: 2\n", "recipe has no 'True'"),
    written("a key with a dot", f"{GOOD}train.epochs: 2\n", "recipe has no 'train.epochs'"),
    written("a Korean key", f"{GOOD}학습: 2\n", "recipe has no '학습'"),
    written("a key of an escape sequence", f'{GOOD}"\\e[31m": 2\n', "recipe has no"),
    written("a key of two lines", f'{GOOD}"a\\nerror: b": 2\n', "recipe has no"),
    written("a key of a hundred thousand letters", f"? {'k' * 100_000}\n: 2\n{GOOD}", "recipe has no"),
    written(
        "a kind of a hundred thousand letters",
        f"{GOOD[: GOOD.index('encoder')]}encoder: {{kind: {'k' * 100_000}}}\n",
        "recipe",
    ),
    written("ten thousand unknown keys", GOOD + "".join(f"k{n}: 1\n" for n in range(10_000)), "9,980 more", most=21),
    written("a merge of a text", "data: {<<: x}\n", f"{PLACE}:1"),
    written("a variable that is not set", "data: {train: '${TWOFOLD_NO_SUCH}'}\n", "${TWOFOLD_NO_SUCH}"),
    written("a million bytes", "x" * 1_000_001, f"{PLACE}: over 1,000,000 bytes"),
    named("that is a folder", folder("recipe.yaml"), PLACE, PLACE),
    named("that is a pipe", fifo("recipe.yaml"), PLACE, PLACE),
    named("without an end", link("recipe.yaml", "/dev/zero"), PLACE, PLACE),
    named("that links to itself", link("recipe.yaml", "recipe.yaml"), PLACE, PLACE),
    named("below a file", put("x", ""), "HERE/x/recipe.yaml", "HERE/x/recipe.yaml"),
    named("with a name too long", nothing, "x" * 5000, "xxx"),
    named("with no name", nothing, "", ""),
    named("with a name of an escape sequence", nothing, "\x1b[31m.yaml", "[31m.yaml"),
    named("outside of those that come along", nothing, "../../etc/passwd", "../../etc/passwd"),
]
KINDS = [
    "../../x",
    "./x.py",
    "os",
    "os.system",
    "twofold",
    "subprocess.Popen",
    "rnn.",
    ".rnn",
    "rnn\n",
    "a b",
    "레이어",
]
KINDS += ["twofold.encoders", "twofold.decoders.rnn", "__main__", "antigravity.x", "rnn; import os", "x" * 3000]
RNNS = {"data": {"train": "x"}, "encoder": {"kind": "rnn"}, "decoder": {"kind": "rnn"}}
PARTS = [
    Case(
        f"{part}.kind={kind[:30]!r}",
        put("recipe.yaml", to_yaml({**RNNS, part: {"kind": kind}})),
        ("train", PLACE, *OUT),
        f"recipe.{part}",
    )
    for part in ("encoder", "decoder", "input", "output")
    for kind in KINDS
    if (part, kind) != ("decoder", "twofold.decoders.rnn")  # which is one
]
ODD = ["[1, {a: 2}]", "{a: {b: 1}}", "-1", "'\\0'"]
"""Values that are right for hardly any setting."""
NUMBERS = ["-1", "nan", "'1'", "[]", "1e400", "-.inf", str(10**30)]
SETTINGS = {
    "data.train": ["[]", "{}", "''", "17", "null", "[[x]]", "{a: 1}"],
    "source": ["17", "{}", "[]", "[1]"],
    "target": ["17", "{}", "[]", "[1]"],
    "input": ["17", "[]", "x"],
    "input.column": ["17", "{}", "[]", "[1]"],
    "input.max_tokens": ["0", *NUMBERS],
    "output": ["17", "[]", "x"],
    "output.column": ["17", "{}", "[]", "[1]"],
    "output.max_tokens": ["0", *NUMBERS],
    "data.held_out": ["-1", "nan", "1.5", str(10**30)],
    "data.held_out_share": ["-1", "2", "nan", "x"],
    "input.too_long": ["truncate", "17", "[]"],
    "output.too_long": ["truncate", "17", "[]"],
    "output.noise": ["17", "{mask: nan}", "{mask: -1}"],
    "output.metrics": ["17", "x", "[1]", "[nowhere]", "[../../x]"],
    "losses": ["17", "[17]", "[{kind: x}]", "[{kind: kl, temperature: nan}]"],
    "two_towers": ["1", "x", "true"],
    "input.tokenizer.size": ["0", "-1", "1.5", str(10**30)],
    "encoder": ["17", "[]", "null", "x"],
    "encoder.width": [*NUMBERS, "0"],
    "encoder.dropout": ["1", "-0.1", "nan", "inf", "x"],
    "decoder": ["17", "null", "[]"],
    "decoders": ["17", "{a: 1}", "[]"],
    "train": ["17", "[]", "x"],
    "train.epochs": ["0", *NUMBERS[:-1]],
    "train.learning_rate": ["0", "-1", "nan", "1e400", "x", ".inf"],
    "train.clip": ["-1", "nan", "1e400"],
    "train.learning_rate_multipliers": ["17", "{encoder: -1}", "{encoder: nan}", "{nowhere: 2}", "{encoder: 1e400}"],
    "train.seed": ["-1", "1.5", str(2**64), str(10**30)],
    "train.batch_tokens": ["0", "-1", "x"],
    "train.device": ["''", "17", "meta", "cuda:99", "'cpu; ls'"],
    "train.schedule": ["x", "17"],
    "train.weight_decay": ["-1", "nan"],
    "train.save_minutes": ["-1", "nan", "1e400"],
    "train.warmup": ["-1", "nan"],
    "train.plateau_factor": ["-1", "nan"],
    "start": ["HERE", "17", "STAGE/paint"],
    "generate.beam": ["0", "-1", "x"],
    "tie_embeddings": ["1", "x"],
    "nowhere.now": ["1"],
}
DATA = (
    "data.train",
    "data.held_out",
    "input.tokenizer.size",
    "train.learning_rate_multipliers",
    "train.device",
    "start",
)
"""Settings that are judged when the folder of the training is there."""
CHANGES = [
    Case(
        f"{key}={value[:20]}",
        nothing,
        ("train", "STAGE/recipe.yaml", f"{key}={value}", *OUT),
        key.split(".")[0] if key.startswith("nowhere") else key.split(".")[-1],
        leaves=("out",) if key in DATA else (),
    )
    for key, values in SETTINGS.items()
    for value in values
]
OTHERS: dict[str, dict[str, list[str]]] = {
    "paint": {
        "source": ["17", "[]"],
        "target": ["17", "[mask, mask]"],
        "input": ["17", "{kind: text}", "{kind: pair}"],
        "input.size": ["0", "[0, 0]", "[8]", "[-1, 8]", "x", str(10**30)],
        "input.folder": ["17", "[]"],
        "input.mean": ["[nan, 0, 0]", "[0]", "x"],
        "input.deviation": ["[0, 0, 0]", "17"],
        "input.broken": ["x", "17"],
        "input.augment": ["17", "{flip: 2}", "{scale: [0, 1]}", "{crop: [0, 0]}", "{color: nan}"],
        "output.classes": ["[]", "[a, a]", "17", "{a: 1}", "null"],
        "output.first_class": ["-1", "300", "1.5"],
        "output.ignore": ["0", "x"],
        "train.batch_rows": ["0", "null", "-1"],
    },
    "caption": {
        "output.column": ["17", "[]", "[1]", "{a: b}", "[nowhere]"],
        "output.prefix": ["-1", "nan", "0.5"],
        "output.tokenizer.size": ["0", "x"],
        "output.tokenizer": ["17", "[]"],
    },
    "ranking": {
        "source": ["17", "[]", "nowhere"],
        "target": ["x"],
        "input.prompt": ["17", "[]"],
        "input.preface": ["17", "[a]"],
        "input.max_tokens": ["1", "0"],
        "output.candidate": ["17", "[]", "x", "{kind: image}", "{kind: pair}"],
        "output.candidate.column": ["17", "[]", "nowhere"],
        "output.candidate.max_tokens": ["0", "1", "nan"],
        "losses": [
            "[]",
            "17",
            "x",
            "[{kind: kl}]",
            "[{kind: in_batch, weight: -1}]",
            "[{kind: in_batch, weight: nan}]",
        ],
        "candidate_encoder": ["17", "x", "{kind: convnet}", "{kind: rnn, width: 7}"],
        "teacher": ["17", "{model: HERE/none}"],
        "train.batch_rows": ["0", "1"],
        "train.hard_negatives": ["1", "-1", "x"],
        "train.chunk_tokens": ["0", "-1", "x"],
        "tie_embeddings": ["x"],
        "decoders": ["{a: {kind: bi}, b: {kind: bi}}"],
    },
}
CHANGES += [
    Case(
        f"{name}, {key}={value[:40]}",
        nothing,
        ("train", f"STAGE/{name}.yaml", f"{key}={value}", *OUT),
        key.split(".")[-1],
        leaves=("out",),
    )
    for name, several in OTHERS.items()
    for key, values in several.items()
    for value in values
]
MISFITS = {
    ("paint", "source=[image, mask]"): "recipe.source: ['image', 'mask'] is not a text; give one",
    ("paint", "output.kind=text"): "recipe.output has no 'classes'",
    ("paint", "output={kind: text}"): "the decoder 'unet' writes pixel classes, but the output 'text' takes hypotheses",
    ("recipe", "input.kind=image"): "recipe.input has no 'tokenizer'",
    ("recipe", "input={kind: image}"): "the encoder 'rnn' reads tokens, but the input 'image' gives images",
    ("recipe", "output={kind: mask, classes: [a]}"): "but the output 'mask' takes pixel classes",
    ("label", "output.kind=text"): "the decoder 'label' writes scores, but the output 'text' takes hypotheses",
    ("tags", "input={kind: text}"): "the output 'tags' needs words, but the input 'text' gives tokens",
    ("ranking", "source=[a, b]"): "the output 'ranking' needs one text",
    ("ranking", "output={kind: text}"): "the decoder 'bi' writes",
}
CHANGES += [
    Case(f"{name}, {change}", nothing, ("train", f"STAGE/{name}.yaml", change, *OUT), says, most=3)
    for (name, change), says in MISFITS.items()
]
WRITTEN = [
    "=",
    "=1",
    "train.epochs",
    "train.epochs=[",
    "..=1",
    ".=1",
    "train.=1",
    "train..epochs=1",
    "data.train.x.y=1",
]
WRITTEN += ["train.epochs=!!python/name:os.system", "train.epochs=&a [*a]", "train.epochs=" + "[" * 5000, "\x1b[2J=1"]
MALFORMED = [
    Case(f"change {change[:30]!r}", nothing, ("train", "STAGE/recipe.yaml", change, *OUT), "") for change in WRITTEN
]
PLACES = [
    Case("--out is a file", put("x", "mine"), ("train", "STAGE/recipe.yaml", "--out", "HERE/x"), "HERE/x"),
    Case("--out below a file", put("x", "mine"), ("train", "STAGE/recipe.yaml", "--out", "HERE/x/y"), "HERE/x/y"),
    Case("--out with a zero byte", nothing, ("train", "STAGE/recipe.yaml", "--out", "HERE/a\0b"), "zero byte", 2),
    Case("--out too long", nothing, ("train", "STAGE/recipe.yaml", "--out", "HERE/" + "x" * 300), "HERE/xxx"),
    Case("--out of a training", nothing, ("train", "STAGE/recipe.yaml", "--out", "STAGE/run"), "STAGE/run: holds a "),
    Case("--out of an index", nothing, ("train", "STAGE/recipe.yaml", "--out", "STAGE/bi.index"), "STAGE/bi.index"),
    Case("--out of a model", nothing, ("train", "STAGE/recipe.yaml", "--out", "STAGE/text"), "STAGE/text"),
    Case("--out is empty", nothing, ("train", "STAGE/recipe.yaml", "--out", ""), "--out"),
    Case("no --out", nothing, ("train", "STAGE/recipe.yaml"), "--out", 2),
    Case("no recipe", nothing, ("train", *OUT), "RECIPE", 2),
    Case(
        "--resume with another recipe",
        nothing,
        ("train", "STAGE/ranking.yaml", "--out", "STAGE/run", "--resume"),
        "STAGE/run: was begun with",
    ),
    Case(
        "a link in a circle as --out",
        all_of(link("out", "out")),
        ("train", "STAGE/recipe.yaml", *OUT),
        "HERE/out",
    ),
]
RECIPES = {"recipe files": FILES, "parts": PARTS, "settings": CHANGES, "changes": MALFORMED, "places": PLACES}
