"""Files of the Hugging Face hub: settings, tokenizer and safetensors of a repository."""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from textwrap import shorten

from twofold.data.named_models import NamedModel
from twofold.models.fetching import UnreachableError, arriving

OPTIONAL = ("README.md", "LICENSE", "config_sentence_transformers.json", "special_tokens_map.json")
"""Files that a repository may lack."""
ANSWER = 10.0
"""Seconds within which the hub must answer."""


def fetch(name: str, model: NamedModel, folder: Path, show: bool) -> None:
    """Brings the files of the model's repository into a folder."""
    assert model.hub
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise UnreachableError("the hub is switched off by HF_HUB_OFFLINE")
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    _ask(f"{endpoint}/{model.hub.name}/resolve/main/config.json")
    with _quiet(), arriving(folder, f"{name} from the hub", model.size, show):
        for file in (*model.hub.files, *OPTIONAL):
            try:
                hf_hub_download(model.hub.name, file, local_dir=folder, endpoint=endpoint)
            except OSError as error:  # connections that break, and files that are not there
                there = isinstance(error, LocalEntryNotFoundError) or not isinstance(error, EntryNotFoundError)
                if there or file not in OPTIONAL:
                    raise UnreachableError(f"hub {model.hub.name}, {file}: {_reason(error)}") from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)


def _ask(address: str) -> None:
    """Asks the hub once; its library would ask again and again for half a minute."""
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the address of the hub
    try:
        with urllib.request.urlopen(request, timeout=ANSWER):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        if error.code < 500:  # it answers; its library says what it lacks
            return
        reason: object = error
    except urllib.error.URLError as error:
        reason = error.reason
    except (OSError, HTTPException, ValueError) as error:
        reason = error
    raise UnreachableError(f"the hub does not answer ({_reason(reason)})")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the library's own messages and progress bars."""
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    said = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
        logging.set_verbosity(said)


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return shorten(" ".join(str(text).split()), 160, placeholder=" ...")
