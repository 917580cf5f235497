"""Debian's Chromium in front of a server, for tests of the page."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")


class Watched:
    """A page of the browser whose errors and requests are written down."""

    def __init__(self, context: Any, address: str) -> None:
        self.address = address
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._note)

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.elsewhere.append(request.url)

    def open(self, place: str = "") -> Any:
        self.page.goto(f"{self.address}/{place}")
        return self.page

    def settle(self) -> None:
        """Waits until no request is under way."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        self.page.locator("#panel > *").first.wait_for(state="attached")
        self.page.locator("#busy").wait_for(state="hidden")

    def check(self) -> None:
        """No error in the console, no request that leaves the machine, no horizontal scrolling."""
        assert self.errors == []
        assert self.elsewhere == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def values(page: Any, selector: str) -> list[float]:
    """All digits of the numbers that the page shows."""
    found: list[str] = page.eval_on_selector_all(selector, "all => all.map((each) => each.getAttribute('value'))")
    return [float(value) for value in found]


def texts(page: Any, selector: str) -> list[str]:
    """Texts of elements."""
    found: list[str] = page.eval_on_selector_all(selector, "all => all.map((each) => each.textContent)")
    return found
