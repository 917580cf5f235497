"""The connections of an open index: one for each thread, closed when the thread has ended."""

from __future__ import annotations

import threading
from pathlib import Path

from twofold.index.store import Book


class Connections:
    """Gives every thread its own `Book`, since SQLite's transactions belong to a connection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._books: dict[threading.Thread, Book] = {}
        self._lock = threading.Lock()

    def book(self) -> Book:
        """The connection of the thread that asks."""
        book = self._books.get(threading.current_thread())
        if book is not None and not book.outdated():
            return book
        opened = Book(self.folder)
        with self._lock:
            for thread in [thread for thread in self._books if not thread.is_alive()]:
                self._books.pop(thread).close()
            before = self._books.pop(threading.current_thread(), None)
            self._books[threading.current_thread()] = opened
        if before is not None:
            before.close()
        return opened

    def close(self) -> None:
        """Close the connection of the thread that asks, and those of threads that have ended."""
        with self._lock:
            current = threading.current_thread()
            for thread in [thread for thread in self._books if thread is current or not thread.is_alive()]:
                self._books.pop(thread).close()
