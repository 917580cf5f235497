"""Texts to token ids and back: BPE or unigram pieces, trained on the recipe's own data."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
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
"""What backbones call the mask, as it is named here so that no text is taken for it."""
MOST_TOKENS = 4_000_000
"""The largest vocabulary; the largest that are used have 250,000."""
ROLES = ("pad", "unknown", "start", "end", "separator")
"""What the special tokens are for, in the same order."""
PARALLELISM = "TOKENIZERS_PARALLELISM"
"""The variable that says whether the library uses threads."""
Ids = Sequence[int] | NDArray[Any]
"""The tokens of one text."""


@dataclass(frozen=True)
class TokenizerConfig:
    """How texts are cut into tokens."""

    kind: Literal["bpe", "unigram"] = "bpe"
    """Byte-pair merges, or the unigram language model."""
    size: int = 8000
    """How many different tokens, special ones included."""
    lowercase: bool = False
    """Whether capitals are read, and so written, as small letters."""

    def __post_init__(self) -> None:
        if self.size < len(SPECIAL) + 1:
            raise ValueError(f"size {self.size} leaves no room beside {len(SPECIAL)} special tokens")
        if self.size > MOST_TOKENS:
            raise ValueError(f"size must be at most {MOST_TOKENS:,}, not {self.size}")


@dataclass(frozen=True)
class Frame:
    """The ids that an encoder wants around a text, or around two texts it reads as one."""

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        """How many tokens it adds to one text."""
        return len(self.before) + len(self.after)

    def around(self, ids: Ids) -> NDArray[np.int64]:
        """One text as its encoder wants it."""
        return np.concatenate([self.before, ids, self.after]).astype(np.int64)

    def joining(self, first: Ids, second: Ids) -> tuple[NDArray[np.int64], int]:
        """Two texts as one, and where the second begins."""
        head = [*self.before, *first, *self.between]
        return np.concatenate([head, second, self.after]).astype(np.int64), len(head)


class TextTokenizer:
    """Texts to ids and back; its own kind cuts NFC-normalized text at spaces and punctuation, then into pieces."""

    threads_used: ClassVar[bool] = False
    """Whether this process has used the threads of tokenizers, after which a fork of it has none."""

    def __init__(
        self, tokenizer: Tokenizer, json: str = "", special: dict[str, str] | None = None, frame: Frame | None = None
    ) -> None:
        """`special` names the tokens of the roles, and `frame` what stands around a text, where they are not ours."""
        # A user's text may contain "</s>": it is text like any other, never the end symbol.
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        # Read again, the scores of a unigram model may differ in the last digit: what was saved is what counts.
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
        """What a token that is to be guessed is read as: a mask where there is one, otherwise the unknown symbol."""
        self.structure = sorted({*ids, *self.frame.before, *self.frame.between, *self.frame.after} - {self.unknown})
        """The tokens that are no text."""

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> TextTokenizer:
        """A tokenizer for texts like these."""
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
    def load(cls, path: Path) -> TextTokenizer:
        """The tokenizer that `save` wrote."""
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
            raise TwofoldError(f"{path}: no such file; the model's folder is not whole") from None
        except Exception as error:  # the library raises plain Exception
            raise TwofoldError(f"{path}: not a tokenizer ({error}); the model's folder is damaged") from error

    def save(self, path: Path) -> None:
        storage.write_bytes(path, self.to_json().encode())

    def to_json(self) -> str:
        """The tokenizer as the library writes it; one that is not ours is wrapped with its special tokens."""
        if self._special is None:
            return self._json
        wrapped = {"special": self._special, "frame": asdict(self.frame), "tokenizer": self._json}
        return json.dumps(wrapped, ensure_ascii=False)

    def fingerprint(self) -> str:
        """A hash of all that decides how texts become ids."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __len__(self) -> int:
        """One more than the highest id; a tokenizer from elsewhere may leave ids out."""
        return self._size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without start and end."""
        TextTokenizer.threads_used = True
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def special_in(self, text: str) -> str | None:
        """A special token whose name stands in a text, where it is text like any other."""
        tokens = self._tokenizer.get_added_tokens_decoder().values()
        names = [token.content.strip() for token in tokens if token.special]
        return next((name for name in names if name in text), None)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; special tokens are left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as the piece of text it stands for, a space as ▁."""
        return [self._tokenizer.id_to_token(token) or UNKNOWN for token in ids]


def _in_child() -> None:
    """Work in one thread: a fork has none of its parent's threads and would wait for them forever."""
    if TextTokenizer.threads_used or not _CHOSEN:
        os.environ[PARALLELISM] = "false"
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):  # which it lacks while it is being imported
        torch.set_num_threads(1)


_CHOSEN = PARALLELISM in os.environ
"""Whether the user said if tokenizers may use threads."""
# Without a word from the user, the library warns when a process that has used its threads is forked.
os.environ.setdefault(PARALLELISM, "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
