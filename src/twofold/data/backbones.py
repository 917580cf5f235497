"""Transformer backbones: their tokenizers, and failures of transformers as errors of one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from tokenizers import Tokenizer, normalizers, processors

from twofold.data.named_models import MODELS, repair_of
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.errors import TwofoldError

FOLDER = "give a folder with config.json, tokenizer.json and model.safetensors (see `twofold import`), or a hub id"
SPECIAL = {
    "pad": ("pad_token", "eos_token", "unk_token"),
    "unknown": ("unk_token", "eos_token", "pad_token"),
    "start": ("cls_token", "bos_token", "eos_token", "pad_token"),
    "end": ("sep_token", "eos_token", "pad_token"),
    "separator": ("sep_token", "eos_token", "pad_token"),
}
"""Candidate tokens for each role, best first. GPT-2 has one token for all roles; its padding is masked."""


@contextmanager
def clearly(name: str, remedy: str = FOLDER) -> Iterator[None]:
    """Turns any failure of transformers into a one-line error and silences its logging."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    remedy = repair_of(name) if name in MODELS else remedy
    said, hub_said = logging.get_verbosity(), hub_logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    except TwofoldError:
        raise
    except Exception as error:
        reason = shorten(str(error) or type(error).__name__, 200, placeholder=" ...")
        if remedy == FOLDER and not Path(name).exists():
            reason = f"there is no such folder, and from the hub: {reason}"
        raise TwofoldError(f"{name}: could not be loaded ({reason}); {remedy}") from error
    finally:
        logging.set_verbosity(said)
        hub_logging.set_verbosity(hub_said)


def read_backbone_tokenizer(name: str, folder: str, remedy: str, start: bool, lowercase: bool) -> TextTokenizer:
    """Reads the tokenizer from a folder or hub id; errors name it `name` and end with `remedy`.

    start: add the start token before texts if the tokenizer adds no special tokens itself
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise TwofoldError(
            f"{name}: has no fast tokenizer (tokenizer.json); load and save the tokenizer once with transformers"
        )
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    if len(backend.get_vocab().keys() - added) < 2:  # transformers makes up an empty tokenizer if the file is missing
        raise TwofoldError(f"{name}: has no tokenizer; {remedy}")
    special = {}
    for role, candidates in SPECIAL.items():
        token = next(filter(None, (getattr(tokenizer, candidate, None) for candidate in candidates)), None)
        if token is None:
            raise TwofoldError(f"{name}: its tokenizer has no token that could serve as {role}")
        special[role] = str(token)
    if lowercase:
        normalizer = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])
    return _unmistakable(backend, special, _frame(name, tokenizer, special, start))


def _frame(name: str, tokenizer: Any, special: dict[str, str], always: bool) -> Frame:
    """Derives the special tokens around one text and between two from the tokenizer's output for a sample pair."""
    alone, pair = tokenizer("first"), tokenizer("first", "second")
    texts, both = alone.sequence_ids(0), pair.sequence_ids(0)
    if 0 not in texts or not {0, 1} <= set(both):
        raise TwofoldError(f"{name}: its tokenizer gives no tokens for plain words; choose another model")
    ids = alone["input_ids"]
    start, separator = tokenizer.convert_tokens_to_ids([special["start"], special["separator"]])
    before, after = ids[: texts.index(0)], ids[len(texts) - texts[::-1].index(0) :]
    between = pair["input_ids"][len(both) - both[::-1].index(0) : both.index(1)]
    # GPT-2 adds no special tokens, but an empty text needs a token, and two texts need a separator.
    return Frame(tuple(before or ([] if after or not always else [start])), tuple(between or [separator]), tuple(after))


def _unmistakable(backend: Any, special: dict[str, str], frame: Frame) -> TextTokenizer:
    """Returns the tokenizer with special tokens renamed (a leading space), so that no text can contain one."""
    # A unigram model finds "</s>" in a text even if the library is told not to look for special tokens.
    content = json.loads(backend.to_str())
    hidden = {token["content"]: f" {token['content']}" for token in content["added_tokens"] if token["special"]}
    for token in content["added_tokens"]:
        token["content"] = hidden.get(token["content"], token["content"])
    _rename_pieces(content["model"], hidden)
    content["post_processor"] = None  # replaced by the frame
    roles = {role: hidden.get(token, token) for role, token in special.items()}
    return TextTokenizer(type(backend).from_str(json.dumps(content)), special=roles, frame=frame)


def transformers_tokenizer(tokenizer: TextTokenizer, limit: int, segments: bool) -> Any:
    """Tokenizer of transformers that gives the same tokens, special tokens around texts included."""
    import transformers

    build: Any = transformers.PreTrainedTokenizerFast
    content = json.loads(tokenizer.library_json)
    shown = {token["content"]: token["content"].removeprefix(" ") for token in content["added_tokens"]}
    for token in content["added_tokens"]:
        token["content"] = shown[token["content"]]
    _rename_pieces(content["model"], shown)
    backend = Tokenizer.from_str(json.dumps(content))
    backend.post_processor = _template(tokenizer.frame, backend)
    roles = {role: shown.get(token, token) for role, token in tokenizer.roles.items()}
    names = {"pad": "pad", "unk": "unknown", "cls": "start", "bos": "start", "sep": "separator", "eos": "end"}
    special = {f"{name}_token": roles[role] for name, role in names.items()}
    reads = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    return build(tokenizer_object=backend, model_max_length=limit, model_input_names=reads, **special)


def _rename_pieces(model: dict[str, Any], names: dict[str, str]) -> None:
    """Renames tokens in a vocabulary."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(token, token): number for token, number in vocabulary.items()}
    else:
        model["vocab"] = [(names.get(token, token), score) for token, score in vocabulary]
    if model.get("unk_token"):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])


def _template(frame: Frame, backend: Tokenizer) -> processors.TemplateProcessing:
    """Special tokens around one text and two, as the library adds them."""
    before, between, after = (
        [backend.id_to_token(number) for number in ids] for ids in (frame.before, frame.between, frame.after)
    )
    first, second = [*(f"{token}:0" for token in before), "$A:0"], ["$B:1", *(f"{token}:1" for token in after)]
    numbers = {backend.id_to_token(number): number for number in (*frame.before, *frame.between, *frame.after)}
    return processors.TemplateProcessing(
        single=[*first, *(f"{token}:0" for token in after)],
        pair=[*first, *(f"{token}:0" for token in between), *second],
        special_tokens=list(numbers.items()),
    )
