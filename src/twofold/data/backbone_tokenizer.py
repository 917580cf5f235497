"""The tokenizer of a backbone of transformers, with what it puts around texts, as our own read them."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import normalizers

from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.errors import TwofoldError

SPECIAL = {
    "pad": ("pad_token", "eos_token", "unk_token"),
    "unknown": ("unk_token", "eos_token", "pad_token"),
    "start": ("cls_token", "bos_token", "eos_token", "pad_token"),
    "end": ("sep_token", "eos_token", "pad_token"),
    "separator": ("sep_token", "eos_token", "pad_token"),
}
"""For each role the tokens that may fill it, best first; GPT-2 has one for all, and its padding is masked anyway."""


def read_backbone_tokenizer(
    name: str, folder: str, remedy: str, start: bool = True, lowercase: bool = False
) -> TextTokenizer:
    """The tokenizer in a folder or of a hub id; messages name it `name`, and the `remedy` where there is none.

    start: put the start token before texts where the tokenizer puts nothing around them
    """
    from transformers import AutoTokenizer

    found: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    backend = getattr(found, "backend_tokenizer", None)
    if backend is None:
        raise TwofoldError(f"{name}: its tokenizer has no quick form (tokenizer.json); save it once in that form")
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    if len(backend.get_vocab().keys() - added) < 2:  # what transformers makes up where there is no file
        raise TwofoldError(f"{name}: has no tokenizer; {remedy}")
    special = {}
    for role, names in SPECIAL.items():
        token = next((getattr(found, one) for one in names if getattr(found, one, None)), None)
        if token is None:
            raise TwofoldError(f"{name}: its tokenizer has no token that could serve as {role}")
        special[role] = str(token)
    if lowercase:
        normalizer = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])
    return _unmistakable(backend, special, _frame(name, found, special, start))


def _frame(name: str, tokenizer: Any, special: dict[str, str], always: bool) -> Frame:
    """What the tokenizer puts around one text and between two, seen from what it does to a made-up pair."""
    alone, pair = tokenizer("first"), tokenizer("first", "second")
    texts, both = alone.sequence_ids(0), pair.sequence_ids(0)
    if 0 not in texts or not {0, 1} <= set(both):
        raise TwofoldError(f"{name}: its tokenizer makes nothing of plain words; choose another")
    ids = alone["input_ids"]
    start, separator = tokenizer.convert_tokens_to_ids([special["start"], special["separator"]])
    before, after = ids[: texts.index(0)], ids[len(texts) - texts[::-1].index(0) :]
    between = pair["input_ids"][len(both) - both[::-1].index(0) : both.index(1)]
    # GPT-2 puts nothing anywhere, but an empty text must be something to read, and two texts must not run together.
    return Frame(tuple(before or ([] if after or not always else [start])), tuple(between or [separator]), tuple(after))


def _unmistakable(backend: Any, special: dict[str, str], frame: Frame) -> TextTokenizer:
    """The same tokenizer, with a space before the names of special tokens, so that no text is taken for them."""
    # A unigram model finds "</s>" in a text even where the library is told not to look for special tokens.
    content = json.loads(backend.to_str())
    hidden = {token["content"] for token in content["added_tokens"] if token["special"]}

    def renamed(token: str) -> str:
        return f" {token}" if token in hidden else token

    for token in content["added_tokens"]:
        token["content"] = renamed(token["content"])
    model, known = content["model"], content["model"]["vocab"]
    pairs = [(renamed(token), value) for token, value in (known.items() if isinstance(known, dict) else known)]
    model["vocab"] = dict(pairs) if isinstance(known, dict) else pairs
    if model.get("unk_token"):
        model["unk_token"] = renamed(model["unk_token"])
    content["post_processor"] = None  # the frame does what it did
    roles = {role: renamed(token) for role, token in special.items()}
    return TextTokenizer(type(backend).from_str(json.dumps(content)), None, roles, frame)
