"""Writes what a source holds as a folder that `kind: pretrained` reads, and reads it once to see that it does."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor

from twofold import storage
from twofold.convert.found import CONSTANT, HEAD, MISSING, SHAPE, UNKNOWN, Found, Item, Settings, refuse
from twofold.data.backbone_files import clearly
from twofold.encoders.pretrained import CONSTANTS, SAFELY, Config, PretrainedEncoder, is_on_top
from twofold.errors import SeveralErrors, TwofoldError
from twofold.model.load import load
from twofold.types import Vocabulary

TOKENIZER = "tokenizer.json"
LEAVE_OUT = "--allow-mismatch leaves out what does not fit"


def write(folder: Path, found: Found, source: Path) -> None:
    """Fill a new folder."""
    storage.write_json(folder / "config.json", dict(found.config))
    _write_tensors(folder, found.tensors)
    files = {**found.files, **(found.tokenizer if TOKENIZER in found.tokenizer else {})}
    for name, content in files.items():
        storage.write_bytes(folder / name, content)
    if TOKENIZER not in found.tokenizer:
        _make_tokenizer(folder, found, source)


def check(folder: Path, found: Found, source: Path, settings: Settings) -> tuple[int, tuple[Item, ...]]:
    """Read the folder as an encoder will; the number of its tokens, and which of its tensors are not read.

    What an encoder lacks is refused even where mismatches are allowed: it would be made up.
    """
    with _named(folder, source):
        encoder = Config(name=str(folder)).settled()
        built = encoder.build(Vocabulary(1, 1, 0, 0, 0, 0), frozenset(["states"]))
        lost, others = _loading(folder, found, built, source)
        refuse(source, lost, "the encoder cannot do without")
        misfits = [item for item in others if item.why == UNKNOWN]
        refuse(source, () if settings.allow_mismatch else misfits, LEAVE_OUT)
        if misfits:
            _write_tensors(folder, fitting(found, others))
        tokens = _check_tokens(folder, found, built, source, settings)
        encoder.own_tokenizer()
        encoder.fill(built)
        if found.format == "sentence-transformers":
            load(folder)
    return tokens, others


def fitting(found: Found, others: Sequence[Item]) -> dict[str, Tensor]:
    """What is written of the tensors: all but those that are known to nobody."""
    left_out = {item.name for item in others if item.why == UNKNOWN}
    return {name: value for name, value in found.tensors.items() if name not in left_out}


def _write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    storage.write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})


def _make_tokenizer(folder: Path, found: Found, source: Path) -> None:
    """Let transformers make tokenizer.json from the files that there are."""
    from transformers import AutoTokenizer

    if not found.tokenizer:
        raise TwofoldError(f"{source}: has no tokenizer (tokenizer.json, or vocab.txt); copy its files there")
    with TemporaryDirectory() as name, clearly(str(source), "its tokenizer's files may be damaged"):
        for file, content in {**found.tokenizer, "config.json": _json(found.config)}.items():
            Path(name, file).write_bytes(content)
        tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        tokenizer.save_pretrained(folder)
    if not (folder / TOKENIZER).is_file():
        raise TwofoldError(f"{source}: its tokenizer has no quick form ({TOKENIZER}); save it once in that form")


def _check_tokens(folder: Path, found: Found, built: PretrainedEncoder, source: Path, settings: Settings) -> int:
    with clearly(str(source), "its tokenizer may be damaged"):
        tokens: int = max(Tokenizer.from_file(str(folder / TOKENIZER)).get_vocab().values(), default=-1) + 1
    rows: int = built.backbone.get_input_embeddings().num_embeddings
    differ = f"{source}: its tokenizer knows {tokens} tokens, its weights {rows}"
    if tokens > rows:
        raise TwofoldError(f"{differ}; give it the tokenizer that it was trained with")
    if found.exact and tokens < rows and not settings.allow_mismatch:
        raise TwofoldError(f"{differ}; --allow-mismatch takes them together all the same")
    return tokens


def _loading(
    folder: Path, found: Found, built: PretrainedEncoder, source: Path
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """What transformers lacks of the tensors that the encoder has, and what it finds beside them."""
    from transformers import AutoModel

    how: dict[str, Any] = {**SAFELY, "use_safetensors": True, "output_loading_info": True}
    with clearly(str(source), "its architecture may need another version of transformers"):
        model, info = AutoModel.from_pretrained(str(folder), ignore_mismatched_sizes=True, **how)
    own = {name: tuple(value.shape) for name, value in built.backbone.state_dict().items()}

    def here(name: str) -> str:
        return name if name in own else name.removeprefix("encoder.")  # where it is one of two halves

    lost = [Item(MISSING, name, own[here(name)]) for name in sorted(info["missing_keys"]) if here(name) in own]
    for name, shape, expected in sorted(info["mismatched_keys"]):
        if here(name) in own:
            lost.append(Item(SHAPE, name, tuple(shape), tuple(expected)))
    others = [_other(name, found, model.base_model_prefix) for name in sorted(info["unexpected_keys"])]
    return tuple(lost), tuple(others)


def _other(name: str, found: Found, prefix: str) -> Item:
    shape = tuple(found.tensors[name].shape) if name in found.tensors else None
    if name.endswith(CONSTANTS):
        return Item(CONSTANT, name, shape)
    return Item(HEAD if is_on_top(name, found.tensors, prefix) else UNKNOWN, name, shape)


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(content)).encode()


@contextmanager
def _named(folder: Path, source: Path) -> Iterator[None]:
    """Let errors and warnings name the source, not the folder that is being written."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            yield
        except TwofoldError as error:
            raise SeveralErrors(str(error).replace(str(folder), str(source)).splitlines()) from error
    for warning in said:
        warnings.warn(str(warning.message).replace(str(folder), str(source)), warning.category, stacklevel=4)
