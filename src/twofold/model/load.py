"""A model from whatever names one: a folder of ours, a backbone's folder or hub id, or a default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.config import EncoderPart, part_config
from twofold.errors import TwofoldError
from twofold.model import saved
from twofold.model.config import RankerConfig
from twofold.model.model import Model
from twofold.model.ranker import Ranker

DEFAULT, MULTILINGUAL = "default", "default-multilingual"
POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
"""What sentence-transformers calls the ways to reduce states."""
FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
LONGEST = 256
"""The most tokens that a backbone reads where nothing says how many it was trained on."""


def load(name: str | Path, allow_code: bool = False) -> Model | Ranker:
    """The model in a folder that a training or `save_pretrained` wrote, or a backbone that ranks as it is."""
    folder = Path(name)
    try:
        folder.exists()
    except OSError as error:  # a name that no folder can have
        raise TwofoldError(f"{name}: no such model ({error.strerror})") from None
    if str(name) in (DEFAULT, MULTILINGUAL) or _is_backbone(folder):
        return zero_shot(str(name))
    on_hub = str(name).count("/") == 1 and not folder.is_absolute() and not str(name).startswith(".")
    if on_hub and not folder.exists() and not folder.parent.is_dir():  # a typing error in runs/... is no owner/name
        return zero_shot(str(name))
    found = saved.read(folder, allow_code)
    kind = Ranker if isinstance(found.config, RankerConfig) else Model
    return kind.from_pretrained(folder, allow_code)


def load_ranker(name: str | Path, allow_code: bool = False) -> Ranker:
    """The same, where only a ranker will do."""
    model = load(name, allow_code)
    if not isinstance(model, Ranker):
        raise TwofoldError(f"{name}: writes text and does not rank; give a bi-, poly- or cross-encoder, or `default`")
    return model


def zero_shot(name: str) -> Ranker:
    """A bi-encoder with nothing trained: both sides reduced as the backbone was trained for, brought to length one."""
    encoder: Any = _part("text_convnet", weights=name) if name == MULTILINGUAL else _part("pretrained", name=name)
    encoder = encoder.settled()
    reduction, longest = ("summary", LONGEST) if name == MULTILINGUAL else _pooling(Path(_folder(name)))
    decoder: Any = part_config("decoders", "bi")
    settings = decoder(reduction=reduction, scale=1.0, learn_scale=False)
    config = RankerConfig(encoder, settings, max_context=longest, max_candidate=longest)
    model = Ranker(config, encoder.own_tokenizer())
    model.start_from()
    return model.eval()


def _part(kind: str, **settings: Any) -> EncoderPart:
    config: Any = part_config("encoders", kind)
    part: EncoderPart = config(**settings)
    return part


def _folder(name: str) -> str:
    from twofold.encoders.pretrained import folder_of

    return folder_of(name)


def _is_backbone(folder: Path) -> bool:
    """Whether it is a folder that transformers would load."""
    file = folder / saved.CONFIG
    if not file.is_file():
        return False
    try:
        return "model_type" in json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False


def _pooling(folder: Path) -> tuple[str, int]:
    """How a sentence-transformers folder reduces states, and how many tokens it reads; the mean elsewhere."""
    reduction, longest = "mean", LONGEST
    if (folder / "1_Pooling" / "config.json").is_file():
        about = storage.read_json(folder / "1_Pooling" / "config.json", "copy the folder again")
        given = about.get("pooling_mode")  # the name of the way, as of version 6; a flag for each one before
        used = [way for name, way in POOLINGS.items() if name == given or about.get(f"pooling_mode_{FLAGS[name]}")]
        if len(used) != 1:
            raise TwofoldError(f"{folder}: its states are reduced in a way that is not known here; name it in a recipe")
        reduction = used[0]
    if (folder / "sentence_bert_config.json").is_file():
        about = storage.read_json(folder / "sentence_bert_config.json", "copy the folder again")
        longest = int(about.get("max_seq_length") or LONGEST)
    elif (folder / "modules.json").is_file() and (folder / "tokenizer_config.json").is_file():
        about = storage.read_json(folder / "tokenizer_config.json", "copy the folder again")
        longest = min(int(about.get("model_max_length") or LONGEST), 2 * LONGEST)
    return reduction, longest
