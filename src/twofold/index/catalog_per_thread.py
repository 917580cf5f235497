"""The catalogs of an open index: one connection for each thread, closed when the thread has ended."""

from __future__ import annotations

import threading
from pathlib import Path

from twofold.index.catalog import Catalog


class CatalogPerThread:
    """Gives every thread its own `Catalog`, since SQLite's transactions belong to a connection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._catalogs: dict[threading.Thread, Catalog] = {}
        self._lock = threading.Lock()

    def current(self) -> Catalog:
        """The catalog of the current thread, opened again where its file has changed unseen."""
        thread = threading.current_thread()
        catalog = self._catalogs.get(thread)
        if catalog is not None and not catalog.outdated():
            return catalog
        opened = Catalog(self.folder)
        with self._lock:
            self._close_ended()
            outdated = self._catalogs.pop(thread, None)
            self._catalogs[thread] = opened
        if outdated is not None:
            outdated.close()
        return opened

    def close(self) -> None:
        """Close the catalog of the current thread, and those of threads that have ended."""
        with self._lock:
            self._close_ended()
            catalog = self._catalogs.pop(threading.current_thread(), None)
            if catalog is not None:
                catalog.close()

    def _close_ended(self) -> None:
        for thread in [thread for thread in self._catalogs if not thread.is_alive()]:
            self._catalogs.pop(thread).close()
