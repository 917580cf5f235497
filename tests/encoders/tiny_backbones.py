"""Backbones as transformers saves them, with random weights and tokenizers of a few hundred tokens."""

from __future__ import annotations

from pathlib import Path
from string import ascii_letters, digits, punctuation
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

TEXTS = [
    "the ferry leaves at seven",
    "first come, first served; second come, second served!",
    "ok",
    "nobody waits for it (except the gulls), and nobody asks why the gulls wait",
]
POSITIONS = 80
BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
MPNET = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "[UNK]", "mask_token": "<mask>"}
MPNET |= {"cls_token": "<s>", "sep_token": "</s>"}
ROBERTA = {**MPNET, "unk_token": "<unk>"}
GPT2 = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
T5 = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"vocab_size": 160, "max_position_embeddings": POSITIONS, **SIZES},
    "distilbert": {"vocab_size": 160, "max_position_embeddings": POSITIONS, "dim": 16, "hidden_dim": 32}
    | {"n_layers": 2, "n_heads": 2},
    "electra": {"vocab_size": 160, "max_position_embeddings": POSITIONS, "embedding_size": 8, **SIZES},
    "gpt2": {"vocab_size": 320, "n_positions": POSITIONS, "n_embd": 16, "n_layer": 2, "n_head": 2}
    | {"bos_token_id": 0, "eos_token_id": 0},
    "mpnet": {"vocab_size": 160, "max_position_embeddings": POSITIONS + 2, **SIZES},
    "roberta": {"vocab_size": 320, "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, **SIZES},
    "t5": {"vocab_size": 160, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
}
"""The settings of each; RoBERTa and MPNet have two more places than they read tokens."""


def wordpiece(special: dict[str, str]) -> Tokenizer:
    """Cuts lower-case text into words and letters."""
    words = [*dict.fromkeys(special.values()), "the", "first", "second", "gulls"]
    letters = [*digits, *ascii_letters[:26], *punctuation]
    known = [*words, *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({token: n for n, token in enumerate(known)}, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def bytes_bpe(special: dict[str, str]) -> Tokenizer:
    """Cuts text into bytes, and some of them together."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[*dict.fromkeys(special.values())],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def unigram(special: dict[str, str]) -> Tokenizer:
    """Cuts text into the likeliest pieces, of which special tokens are some."""
    pieces = ["the", "▁the", "first", "▁gulls", "▁", *ascii_letters, *digits, *punctuation]
    scores = [*((token, 0.0) for token in special.values()), *((piece, -3.0) for piece in pieces)]
    tokenizer = Tokenizer(models.Unigram(scores, [*special.values()].index(special["unk_token"]), False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """Tokenizer of a family, and its special tokens around one text and two."""
    match family:
        case "gpt2":
            return wrapped(bytes_bpe(GPT2), GPT2)
        case "mpnet":
            return wrapped(wordpiece(MPNET), MPNET, "<s> $A </s>", "<s> $A </s> </s> $B </s>")
        case "roberta":
            return wrapped(bytes_bpe(ROBERTA), ROBERTA, "<s> $A </s>", "<s> $A </s> </s> $B </s>")
        case "t5":
            return wrapped(unigram(T5), T5, "$A </s>", "$A </s> $B </s>")
        case _:
            return wrapped(wordpiece(BERT), BERT, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")


def wrapped(tokenizer: Tokenizer, special: dict[str, str], single: str = "", pair: str = "") -> PreTrainedTokenizerFast:
    """The tokenizer as transformers knows it."""
    if single:
        ids = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys(special.values())]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)  # type: ignore[no-untyped-call]


def save(family: str, folder: Path) -> Path:
    """A backbone of a family, saved as transformers does it; far from what is drawn at first, to tell parts apart."""
    torch.manual_seed(0)
    model: Any = AutoModel.from_config(AutoConfig.for_model(family, **FAMILIES[family]))  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value), alpha=0.2)
    model.save_pretrained(folder)
    tokenizer_of(family).save_pretrained(folder)
    return folder
