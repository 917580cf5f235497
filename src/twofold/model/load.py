"""A model from whatever names one: a folder of ours, a backbone's folder or hub id, or a default."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from twofold import storage
from twofold.config import part_config
from twofold.data.text_column import Keep
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError, listed
from twofold.inputs import INPUT
from twofold.inputs.text import Config as TextInput
from twofold.model import saved
from twofold.model.config import MAIN, ModelConfig, Task
from twofold.model.limits import within_positions
from twofold.model.model import Model
from twofold.model.ranker import Ranker
from twofold.model.sentence_folder import (
    AGAIN,
    DOCUMENT,
    MODULES,
    QUERY,
    SentenceFolder,
    in_folder,
    read_sentence_folder,
)
from twofold.model.sentence_modules import Module
from twofold.outputs.ranking import Config as RankingOutput

DEFAULT, MULTILINGUAL = "default", "default-multilingual"
ALONE = "a recipe takes its network alone: encoder: {kind: pretrained, name: ...}"
LONGEST = 256
"""The most tokens that a backbone reads where nothing says how many it was trained on."""


def load(name: str | Path, allow_code: bool = False) -> Model:
    """The model in a folder that a training or `save_pretrained` wrote, or a backbone that ranks as it is."""
    folder = Path(name)
    try:
        folder.exists()
    except (OSError, ValueError) as error:  # a name that no folder can have
        raise TwofoldError(f"{name}: no such model ({getattr(error, 'strerror', None) or error})") from None
    if str(name) in (DEFAULT, MULTILINGUAL) or saved.is_backbone(folder) or (folder / MODULES).is_file():
        return zero_shot(str(name))
    on_hub = str(name).count("/") == 1 and not folder.is_absolute() and not str(name).startswith(".")
    if on_hub and not folder.exists() and not folder.parent.is_dir():  # a typing error in runs/... is no owner/name
        return zero_shot(str(name))
    read = saved.read(folder, allow_code)
    return (Ranker if read.config.ranks else Model).from_saved(read)


def load_ranker(name: str | Path, allow_code: bool = False) -> Ranker:
    """The same, where only a ranker will do."""
    model = load(name, allow_code)
    if not isinstance(model, Ranker):
        raise TwofoldError(f"{name}: does not rank candidates; give a bi-, poly- or cross-encoder, or `default`")
    return model


def zero_shot(name: str) -> Ranker:
    """A bi-encoder with nothing trained: both sides reduced as the backbone was trained for."""
    if name == MULTILINGUAL:
        return _ranker(_bi_encoder(_part("text_convnet", weights=name), _bi(pooling="summary")))
    folder = _folder(name)
    sentences = read_sentence_folder(name, partial(_beside, folder))
    if sentences is None:  # a backbone of transformers, which says nothing of sentences
        return _ranker(_bi_encoder(_part("pretrained", name=name), _bi(pooling="mean")))
    return _of_sentences(name, folder, sentences)


def _of_sentences(name: str, folder: str, sentences: SentenceFolder) -> Ranker:
    """The bi-encoder whose vectors and scores are those of sentence-transformers."""
    if misfits := sentences.misfits():
        raise TwofoldError(f"{name}: cannot be read as sentence-transformers does ({misfits[0]}); {ALONE}")
    inner = sentences.network.path
    if inner and not Path(folder).is_dir():
        raise TwofoldError(f"{name}: its network is in {inner}; download it and run `twofold import` on its folder")
    encoder: Any = _part("pretrained", name=str(Path(name, inner)) if inner else name)
    encoder = encoder.settled()
    if sentences.pooling_kind == "first" and encoder.spec().causal:
        raise TwofoldError(f"{name}: Pooling by cls of a causal network, whose first token sees no other; {ALONE}")
    sentences.check_widths(encoder.spec().width("states"))
    weights = [_dense_weights(name, folder, module) for module in sentences.dense]
    unit = sentences.normalizes
    decoder = _bi(
        pooling=sentences.pooling_kind,
        dense=tuple(module.dense() for module in sentences.dense),
        normalize="both" if unit else "none",
        similarity="dot" if unit else sentences.similarity,
    )
    prompts = sentences.prompt(QUERY), sentences.prompt(DOCUMENT)
    config = _bi_encoder(encoder, decoder, sentences.limit, *prompts, keep="turns")
    tokenizer = encoder.own_tokenizer(start=False, lowercase=sentences.lowercase)
    for prompt in prompts:
        if token := tokenizer.special_in(prompt):
            raise TwofoldError(f"{name}: its prompt {prompt!r} holds the special token {token}; {ALONE}")
    model = _ranker(config, tokenizer)
    linear = [module for module in cast(Any, model.head).dense if isinstance(module, nn.Linear)]
    for layer, tensors in zip(linear, weights, strict=True):
        layer.load_state_dict({key.removeprefix("linear."): value for key, value in tensors.items()})
    return model


def _ranker(config: ModelConfig, tokenizer: TextTokenizer | None = None) -> Ranker:
    config = replace(config, encoder=config.encoder.settled())
    tokenizer = tokenizer or config.encoder.own_tokenizer()
    assert tokenizer is not None
    model = Ranker(within_positions(config, tokenizer.frame), {INPUT: tokenizer})
    model.start_from()
    return model.eval()


def _bi(**settings: Any) -> DecoderConfig:
    config: Any = part_config("decoders", "bi")
    part: DecoderConfig = config(scale=1.0, learn_scale=False, **settings)
    return part


def _bi_encoder(
    encoder: EncoderConfig,
    decoder: DecoderConfig,
    limit: int = LONGEST,
    query: str = "",
    document: str = "",
    keep: Keep = "tail",
) -> ModelConfig:
    """A ranker of contexts and candidates of at most so many tokens, each with its prompt."""
    contexts = TextInput(column="context", max_tokens=limit, keep=keep, prompt=query)
    candidates = TextInput(column="response", max_tokens=limit, prompt=document)
    return ModelConfig(contexts, encoder, {MAIN: Task(decoder, RankingOutput(candidate=candidates))})


def _dense_weights(name: str, folder: str, module: Module) -> dict[str, Tensor]:
    """The tensors of a dense layer, if they are those of its settings."""
    file = f"{module.path}/{saved.WEIGHTS}"
    path = _beside(folder, file)
    if path is None:
        pickled = (
            " (pytorch_model.bin is never read)" if _beside(folder, f"{module.path}/pytorch_model.bin", True) else ""
        )
        raise TwofoldError(f"{name}: has no {file}{pickled}; `twofold import` writes it, or save it as safetensors")
    settings = module.dense()
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (settings.width, module.about["in_features"])}
    shapes |= {"linear.bias": (settings.width,)} if settings.bias else {}
    given = storage.tensor_shapes(path, AGAIN)
    if given != shapes:
        raise TwofoldError(f"{path}: holds {_shown(given)}, and its config.json says {_shown(shapes)}; {AGAIN}")
    return storage.read_tensors(path, AGAIN)


def _shown(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return listed([f"{name} {shape}" for name, shape in sorted(shapes.items())]) or "nothing"


def _part(kind: str, **settings: Any) -> EncoderConfig:
    config: Any = part_config("encoders", kind)
    part: EncoderConfig = config(**settings)
    return part


def _folder(name: str) -> str:
    from twofold.data.backbone_files import folder_of

    return folder_of(name)


def _beside(name: str, file: str, rare: bool = False) -> Path | None:
    """A file that lies beside a backbone, in its folder or on the hub, if there is one."""
    if Path(name).is_dir():
        return in_folder(Path(name))(file)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    from twofold.data.backbone_files import clearly

    with clearly(name):
        try:
            return Path(hf_hub_download(name, file))
        except LocalEntryNotFoundError:
            if not rare:
                warnings.warn(f"{name}: {file} is not in the cache, and the hub cannot be asked for it", stacklevel=2)
        except EntryNotFoundError:
            pass
    return None
