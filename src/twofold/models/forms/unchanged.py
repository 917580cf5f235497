"""Files that are read as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

from twofold.data.named_models import NamedModel


def write(members: Path, folder: Path, model: NamedModel) -> None:
    """Moves the files of the archives into the folder."""
    for path in sorted(members.rglob("*")):
        place = folder / path.relative_to(members)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            shutil.move(path, place)
