"""Tokenizers: texts to token ids and back, with BPE or unigram sub-words trained on the recipe's data."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from twofold import storage
from twofold.errors import TwofoldError
from twofold.storage import refuse_special

PAD, UNKNOWN, START, END, SEPARATOR = SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<sep>")
MASKS = (" [MASK]", " <mask>")
"""Mask tokens of backbones, with a leading space so that no text contains them."""
MOST_TOKENS = 4_000_000
"""Maximum vocabulary size; the largest in use have 250,000."""
ROLES = ("pad", "unknown", "start", "end", "separator")
"""Roles of the special tokens, in the same order."""
SLICE = 1 << 20
"""Characters that are tokenized together, where only the beginnings of long texts are kept: what the library makes of a
text takes more than forty times its memory."""
PARALLELISM = "TOKENIZERS_PARALLELISM"
"""Environment variable that turns the threads of the tokenizers library on or off."""
Ids = Sequence[int] | NDArray[Any]
"""Token ids of one text."""


@dataclass(frozen=True)
class TokenizerConfig:
    """Settings of the tokenizer that is trained on the recipe's texts."""

    kind: Literal["bpe", "unigram"] = "bpe"
    """Sub-word algorithm: `bpe` (byte-pair encoding) or `unigram` (unigram language model)."""
    size: int = 8000
    """Vocabulary size, special tokens included."""
    lowercase: bool = False
    """Lowercases all texts before they are tokenized, so that the model also writes lowercase."""

    def __post_init__(self) -> None:
        if self.size < len(SPECIAL) + 1:
            raise ValueError(f"size {self.size} leaves no room beside {len(SPECIAL)} special tokens")
        if self.size > MOST_TOKENS:
            raise ValueError(f"size must be at most {MOST_TOKENS:,}, not {self.size}")


@dataclass(frozen=True)
class Frame:
    """Special tokens that an encoder expects around a text, or around two texts read together."""

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Number of tokens added to one text."""
        return len(self.before) + len(self.after)

    def around(self, ids: Ids) -> NDArray[np.int64]:
        """Adds the special tokens around one text."""
        return np.concatenate([self.before, ids, self.after]).astype(np.int64)

    def joining(self, first: Ids, second: Ids) -> tuple[NDArray[np.int64], int]:
        """Joins two texts with special tokens; also returns the start of the second."""
        head = [*self.before, *first, *self.between]
        return np.concatenate([head, second, self.after]).astype(np.int64), len(head)


class TextTokenizer:
    """Tokenizer. A trained one splits NFC-normalized text at spaces and punctuation, then into sub-words."""

    threads_used: ClassVar[bool] = False
    """True if this process has used the library's threads; a fork must not use them any more."""

    def __init__(
        self, tokenizer: Tokenizer, json: str = "", special: dict[str, str] | None = None, frame: Frame | None = None
    ) -> None:
        """`special` names the special tokens by role and `frame` the tokens around a text, for tokenizers from
        elsewhere."""
        # A user's text may contain "</s>"; it is ordinary text, never the end symbol.
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        # Reloaded scores of a unigram model may differ in the last digit; the saved ones count.
        self._json = json or tokenizer.to_str()
        self._special = special or None
        names = [special[role] for role in ROLES] if special else SPECIAL
        vocabulary = tokenizer.get_vocab()
        ids = [vocabulary[name] for name in names if name in vocabulary]
        if len(ids) < len(SPECIAL):
            raise TwofoldError(f"the tokenizer lacks some of the special tokens {', '.join(dict.fromkeys(names))}")
        self.pad, self.unknown, self.start, self.end, self.separator = ids
        self._size = max(vocabulary.values()) + 1
        self.frame = Frame(before=(self.start,), between=(self.end,)) if frame is None else frame
        self.mask = next((vocabulary[name] for name in MASKS if name in vocabulary), self.unknown)
        """Id of the mask token, or of the unknown token if there is no mask token."""
        self.structure = sorted({*ids, *self.frame.before, *self.frame.between, *self.frame.after} - {self.unknown})
        """Ids of the special tokens, which are not text."""

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> TextTokenizer:
        """Trains a tokenizer on texts."""
        settings: dict[str, Any] = {"vocab_size": config.size, "special_tokens": list(SPECIAL), "show_progress": False}
        trainer: trainers.Trainer
        if config.kind == "bpe":
            tokenizer, trainer = Tokenizer(models.BPE(unk_token=UNKNOWN)), trainers.BpeTrainer(**settings)
        else:
            tokenizer, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer(unk_token=UNKNOWN, **settings)
        tokenizer.normalizer = normalizers.NFC()
        if config.lowercase:
            tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        tokenizer.decoder = decoders.Metaspace()
        TextTokenizer.threads_used = True
        try:
            tokenizer.train_from_iterator(texts, trainer)
        except TwofoldError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise TwofoldError(f"tokenizer.size={config.size}: {error}") from error
        return cls(tokenizer)

    @classmethod
    def untrained(cls, size: int) -> TextTokenizer:
        """Makes a tokenizer with a vocabulary of the given size that knows no text, for the shapes of a model."""
        names = [*SPECIAL, *(f"<{number}>" for number in range(len(SPECIAL), size))]
        return cls(Tokenizer(models.WordLevel({name: id for id, name in enumerate(names)}, UNKNOWN)))

    @classmethod
    def load(cls, path: Path) -> TextTokenizer:
        """Loads a tokenizer written by `save`."""
        try:
            refuse_special(path)
            text = path.read_text(encoding="utf-8")
            content = storage.parse_json(text)
            if "frame" not in content:
                return cls(Tokenizer.from_str(text), text)
            frame = Frame(**{name: tuple(ids) for name, ids in content["frame"].items()})
            text = content["tokenizer"]
            return cls(Tokenizer.from_str(text), text, content["special"], frame)
        except FileNotFoundError:
            raise TwofoldError(f"{path}: no such file; the model's folder is incomplete") from None
        except Exception as error:  # the library raises plain Exception
            raise TwofoldError(f"{path}: not a tokenizer ({error}); the model's folder is damaged") from error

    def save(self, path: Path) -> None:
        storage.write_bytes(path, self.to_json().encode())

    def to_json(self) -> str:
        """Serializes the tokenizer; one from elsewhere is wrapped with its special tokens."""
        if self._special is None:
            return self._json
        wrapped = {"special": self._special, "frame": asdict(self.frame), "tokenizer": self._json}
        return json.dumps(wrapped, ensure_ascii=False)

    @property
    def library_json(self) -> str:
        """JSON of the tokenizers library, without the special tokens around texts."""
        return self._json

    @property
    def roles(self) -> dict[str, str]:
        """Special tokens by role."""
        return self._special or dict(zip(ROLES, SPECIAL, strict=True))

    def fingerprint(self) -> str:
        """Hash of everything that determines the token ids."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __len__(self) -> int:
        """Highest id plus one; tokenizers from elsewhere may leave ids unused."""
        return self._size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without start and end symbols."""
        TextTokenizer.threads_used = True
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_each(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Yields the token ids of each text, `SLICE` characters at a time."""
        start = size = 0
        for stop, text in enumerate(texts, start=1):
            size += len(text)
            if size >= SLICE or stop == len(texts):
                yield from self.encode(texts[start:stop])
                start, size = stop, 0

    def places(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Characters of each text at which its tokens begin and end, ascending: (tokens, 2)."""
        TextTokenizer.threads_used = True
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        places = (np.array(encoding.offsets, np.int64).reshape(-1, 2) for encoding in encodings)
        return [np.maximum.accumulate(ends, axis=0) for ends in places]

    def special_in(self, text: str) -> str | None:
        """Returns a special token that occurs in a text, where it is treated as ordinary text."""
        tokens = self._tokenizer.get_added_tokens_decoder().values()
        names = [token.content.strip() for token in tokens if token.special]
        return next((name for name in names if name in text), None)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text piece of each token id, with ▁ for a space."""
        return [self._tokenizer.id_to_token(token) or UNKNOWN for token in ids]

    def id_of(self, piece: str) -> int | None:
        """Id of a text piece, or None."""
        id: int | None = self._tokenizer.token_to_id(piece)
        return id


def _in_child() -> None:
    """Uses one thread after a fork, which would wait forever for its parent's threads."""
    if TextTokenizer.threads_used or not _CHOSEN:
        os.environ[PARALLELISM] = "false"
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):  # missing while torch is being imported
        torch.set_num_threads(1)


_CHOSEN = PARALLELISM in os.environ
"""True if the user has set the variable."""
# If the user has not set it, the library warns when a process that has used its threads forks.
os.environ.setdefault(PARALLELISM, "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
