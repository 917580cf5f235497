"""Indexes that are open when a process forks."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.index.catalog import CatalogPerThread
    from twofold.index.index import Index

OPEN: weakref.WeakSet[Index] = weakref.WeakSet()
PARENT_CATALOGS: list[CatalogPerThread] = []
"""Catalogs of the process from which this one was forked: to close one would undo the parent's locks."""


def _before_fork() -> None:
    for index in list(OPEN):
        index.close()


def _after_fork_in_child() -> None:
    for index in list(OPEN):
        index.renew()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
