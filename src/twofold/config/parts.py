"""The folders of parts: `kind: poly` of a decoder is the file decoders/poly.py; a user's own is a module or a file."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, get_args

from twofold.errors import TwofoldError, did_you_mean, one_line
from twofold.storage import sha256
from twofold.storage.special_files import refuse_special

Role = Literal["inputs", "outputs", "encoders", "decoders", "losses", "metrics"]
"""The folders whose files are kinds: `kind: poly` of a decoder is the file decoders/poly.py."""
ROLES: tuple[Role, ...] = get_args(Role)
LONGEST_NAME = 100
"""Characters of a name that is unknown here, as an error shows it."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Base of every part's `Config`; the base of a folder's parts names that folder as its `role`."""

    role: ClassVar[Role]
    sizes: ClassVar[bool] = False
    """Whether whole numbers among its settings are sizes, at least 1, and shares are below 1."""


def kinds(role: Role) -> list[str]:
    """The parts that come along: the files of the folder."""
    return sorted(path.stem for path in (Path(__file__).parents[1] / role).glob("*.py") if path.stem != "__init__")


def part_config(role: Role, kind: str) -> type[Part]:
    """The `Config` class of a part."""
    module = part_module(role, kind)
    config: Any = getattr(module, "Config", None)
    if not (isinstance(config, type) and issubclass(config, Part) and getattr(config, "role", None) == role):
        base = f"{_singular(role).capitalize()}Config"
        raise TwofoldError(f"the module {module.__name__} has no `Config` class made from {base} (twofold.{role})")
    return config


def _singular(role: Role) -> str:
    """What one part of a folder is called."""
    return "loss" if role == "losses" else role.removesuffix("s")


def part_module(role: Role, kind: str) -> ModuleType:
    """The module of a part: a file of its folder, a user's module `package.part`, or a user's file `./part.py`."""
    if kind.endswith(FILE):
        return _module_of_file(Path(kind), role)
    shown = one_line(kind, LONGEST_NAME)
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", kind):
        raise TwofoldError(f"'{shown}' is not the name of a part; {did_you_mean(shown, kinds(role))}")
    if "." not in kind and kind not in kinds(role):
        raise TwofoldError(f"there is no {_singular(role)} '{shown}'; {did_you_mean(shown, kinds(role))}")
    try:
        return importlib.import_module(kind if "." in kind else f"twofold.{role}.{kind}")
    except ImportError as error:
        raise TwofoldError(
            f"the {_singular(role)} '{kind}' cannot be imported ({error}); is its package installed?"
        ) from error


FILE = ".py"
"""How a kind ends that is a user's own file."""
_FILES: dict[str, Path] = {}
"""The files of users' own parts, by the names of their modules."""


def _module_of_file(path: Path, role: Role) -> ModuleType:
    """The module in a user's own file; one of the same content is imported once."""
    try:
        refuse_special(path)
        name = f"twofold_part_{path.stem}_{sha256(path)[:16]}"
    except OSError as error:
        raise TwofoldError(f"the {_singular(role)} '{path}' cannot be read ({error.strerror or error})") from None
    if name in sys.modules:
        _FILES.setdefault(name, path.resolve())
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks its module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise TwofoldError(
            f"the {_singular(role)} '{path}' cannot be imported ({type(error).__name__}: {error})"
        ) from error
    _FILES[name] = path.resolve()
    return module


def kind_of(part: Part) -> str:
    """The `kind` under which a part is named in a recipe."""
    module = type(part).__module__
    if module in _FILES:
        return str(_FILES[module])
    package, _, name = module.rpartition(".")
    return name if package == f"twofold.{part.role}" else module
