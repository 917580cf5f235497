"""Texts to token ids and back: BPE or unigram pieces, trained on the recipe's own data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from twofold import storage
from twofold.errors import TwofoldError

PAD, UNKNOWN, START, END, SEPARATOR = SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<sep>")

# The tokenizers library would otherwise warn when a process that has used its threads starts another.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


@dataclass(frozen=True)
class TokenizerConfig:
    """How texts are cut into tokens."""

    kind: Literal["bpe", "unigram"] = "bpe"
    """Byte-pair merges, or the unigram language model."""
    size: int = 8000
    """How many different tokens, special ones included."""
    shared: bool = True
    """Whether all columns share one vocabulary; otherwise each gets its own of this size."""

    def __post_init__(self) -> None:
        if self.size < len(SPECIAL) + 1:
            raise ValueError(f"size {self.size} leaves no room beside {len(SPECIAL)} special tokens")


class TextTokenizer:
    """Cuts NFC-normalised text at spaces and punctuation, then into pieces; the pieces give the text back."""

    def __init__(self, tokenizer: Tokenizer, json: str | None = None) -> None:
        # A user's text may contain "</s>": it is text like any other, never the end symbol.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        # Read again, the scores of a unigram model may differ in the last digit: what was saved is what counts.
        self._json = json or tokenizer.to_str()
        ids = [number for token in SPECIAL if (number := tokenizer.token_to_id(token)) is not None]
        if len(ids) < len(SPECIAL):
            raise TwofoldError(f"the tokenizer lacks some of the special tokens {', '.join(SPECIAL)}")
        self.pad, self.unknown, self.start, self.end, self.separator = ids

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> TextTokenizer:
        """A tokenizer for texts like these."""
        special = list(SPECIAL)
        trainer: trainers.Trainer
        if config.kind == "bpe":
            tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
            trainer = trainers.BpeTrainer(vocab_size=config.size, special_tokens=special, show_progress=False)
        else:
            tokenizer = Tokenizer(models.Unigram())
            trainer = trainers.UnigramTrainer(
                vocab_size=config.size, special_tokens=special, unk_token=UNKNOWN, show_progress=False
            )
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        tokenizer.decoder = decoders.Metaspace()
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
            text = path.read_text(encoding="utf-8")
            return cls(Tokenizer.from_str(text), text)
        except FileNotFoundError:
            raise TwofoldError(f"{path}: no such file; the model's folder is not whole") from None
        except Exception as error:  # the library raises plain Exception
            raise TwofoldError(f"{path}: not a tokenizer ({error}); the model's folder is damaged") from error

    def save(self, path: Path) -> None:
        storage.write_bytes(path, self.to_json().encode())

    def to_json(self) -> str:
        return self._json

    def __len__(self) -> int:
        size: int = self._tokenizer.get_vocab_size()
        return size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without start and end."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; special tokens are left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as the piece of text it stands for, a space as ▁."""
        return [self._tokenizer.id_to_token(token) or UNKNOWN for token in ids]
