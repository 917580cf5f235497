"""Small models behind a real server, and Debian's Chromium in front of it, for tests of the page."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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
STARTS_WITHIN = 90.0
"""Seconds in which the server says where it listens."""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")


@contextmanager
def serving(served: Mapping[str, Path], cache: Path, *options: str) -> Iterator[str]:
    """Serves models and indexes in a process of its own; yields its address."""
    names = [f"{name}={path}" for name, path in served.items()]
    command = [sys.executable, "-m", "twofold", "serve", *names, "--port", "0", *options]
    environment = {**os.environ, "TWOFOLD_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)
    watch = threading.Timer(STARTS_WITHIN, process.kill)
    watch.start()
    try:
        address, log = _address(process)
        watch.cancel()
        drain = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
        drain.start()
        _wait_until_ready(address, process)
        yield address
    finally:
        watch.cancel()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        drain.join(10)
        if process.stderr:
            process.stderr.close()


def _wait_until_ready(address: str, process: subprocess.Popen[str]) -> None:
    """Asks until the server has read with every model once."""
    end = time.monotonic() + STARTS_WITHIN
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{address}/ready", timeout=STARTS_WITHIN):
                return
        except OSError:  # it does not listen yet, or answers 503
            time.sleep(0.1)
    raise AssertionError("the server is not ready")


def _address(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Address that the server says on its standard error, and what it said before."""
    log: list[str] = []
    for line in process.stderr or ():
        log.append(line)
        if said := re.search(r"http://\S+", line):
            return said.group().rstrip("/"), log
    raise AssertionError("the server ended:\n" + "".join(log))


class Watched:
    """A page of the browser whose errors and requests are written down."""

    def __init__(self, context: Any, address: str) -> None:
        self.address, self.errors, self.elsewhere = address, [], []  # type: ignore[var-annotated]
        self.page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._note)

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
