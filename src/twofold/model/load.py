"""A model from whatever names one: a folder of ours, a backbone's folder or hub id, or a default."""

from __future__ import annotations

import warnings
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
AGAIN = "copy the folder again"
LONGEST = 256
"""The most tokens that a backbone reads where nothing says how many it was trained on."""


def load(name: str | Path, allow_code: bool = False) -> Model | Ranker:
    """The model in a folder that a training or `save_pretrained` wrote, or a backbone that ranks as it is."""
    folder = Path(name)
    try:
        folder.exists()
    except OSError as error:  # a name that no folder can have
        raise TwofoldError(f"{name}: no such model ({error.strerror})") from None
    if str(name) in (DEFAULT, MULTILINGUAL) or saved.is_backbone(folder):
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
        raise TwofoldError(f"{name}: does not rank candidates; give a bi-, poly- or cross-encoder, or `default`")
    return model


def zero_shot(name: str) -> Ranker:
    """A bi-encoder with nothing trained: both sides reduced as the backbone was trained for, brought to length one."""
    encoder: Any = _part("text_convnet", weights=name) if name == MULTILINGUAL else _part("pretrained", name=name)
    encoder = encoder.settled()
    reduction, longest = ("summary", LONGEST) if name == MULTILINGUAL else _pooling(_folder(name))
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


def _pooling(name: str) -> tuple[str, int]:
    """How a sentence-transformers model reduces states, and how many tokens it reads; the mean elsewhere."""
    if not _beside(name, "modules.json"):
        return "mean", LONGEST
    reduction, longest = "mean", None
    if file := _beside(name, "1_Pooling/config.json"):
        about = storage.read_json(file, AGAIN)
        given = about.get("pooling_mode")  # the name of the way, as of version 6; a flag for each one before
        used = [way for mode, way in POOLINGS.items() if mode == given or about.get(f"pooling_mode_{FLAGS[mode]}")]
        if len(used) != 1:
            raise TwofoldError(f"{name}: its states are reduced in a way that is not known here; name it in a recipe")
        reduction = used[0]
    if file := _beside(name, "sentence_bert_config.json"):
        longest = storage.read_json(file, AGAIN).get("max_seq_length")
    if not longest and (file := _beside(name, "tokenizer_config.json")):
        longest = min(int(storage.read_json(file, AGAIN).get("model_max_length") or LONGEST), 2 * LONGEST)
    return reduction, int(longest or LONGEST)


def _beside(name: str, file: str) -> Path | None:
    """A file that lies beside a backbone, in its folder or on the hub, if there is one."""
    if Path(name).is_dir():
        return Path(name, file) if Path(name, file).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    from twofold.encoders.pretrained import clearly

    with clearly(name):
        try:
            return Path(hf_hub_download(name, file))
        except LocalEntryNotFoundError:
            warnings.warn(f"{name}: {file} is not in the cache, and the hub cannot be asked for it", stacklevel=2)
        except EntryNotFoundError:
            pass
    return None
