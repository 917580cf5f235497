"""Files that come inside other packages, such as weights: found without importing them, checked before use."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from twofold.errors import TwofoldError
from twofold.storage import sha256


def packaged_folder(package: str, remedy: str) -> Path:
    """The folder of an installed package, whose code is not run."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise TwofoldError(f"the package '{package}' is not installed; {remedy}")
    return Path(next(iter(found.submodule_search_locations)))


def checked(path: Path, expected: str, remedy: str) -> Path:
    """The file itself, if its SHA-256 is the one that is known."""
    try:
        found = sha256(path)
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    if found != expected:
        raise TwofoldError(f"{path}: not the file that is known (its SHA-256 starts {found[:8]}); {remedy}")
    return path
