"""Settings as typed objects, and the folders of parts that they name."""

from twofold.config.parts import FILE, ROLES, Part, Role, kind_of, kinds, part_config, part_module
from twofold.config.settings import structure, unstructure

__all__ = [
    "FILE",
    "ROLES",
    "Part",
    "Role",
    "kind_of",
    "kinds",
    "part_config",
    "part_module",
    "structure",
    "unstructure",
]
