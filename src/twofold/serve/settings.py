"""Settings of the service: where it listens, who may ask, and limits of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twofold.errors import TwofoldError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that only this machine reaches."""


def limit(default: Any, said: str) -> Any:
    """Field of a limit with what `--help` says of it."""
    return field(default=default, metadata={"help": said})


@dataclass(frozen=True)
class Limits:
    """Limits of requests. What is beyond them is refused with a status of 4xx, and other requests go on."""

    body: int = limit(16 << 20, "Largest body of a request, in bytes.")
    bodies: int = limit(256 << 20, "Largest sum of bodies that a process holds at a time, in bytes.")
    texts: int = limit(10_000, "Most texts, images or sounds in a request.")
    characters: int = limit(100_000, "Most characters of a text.")
    tokens: int = limit(1 << 20, "Most tokens in a request, as the model counts them.")
    hits: int = limit(1_000, "Most hits, and candidates that a later stage re-ranks.")
    explained: int = limit(100, "Most candidates whose scores a request may have explained.")
    beam: int = limit(16, "Most hypotheses in beam search.")
    pixels: int = limit(16_000_000, "Most pixels of an image.")
    seconds: float = limit(60.0, "Longest time from a whole request to its answer.")
    read_seconds: float = limit(20.0, "Longest time in which a client must have sent its request.")
    idle_seconds: float = limit(75.0, "Longest time that a connection without a request stays open.")
    queue: int = limit(512, "Most requests that wait for a model; a further one is answered 429 with Retry-After.")
    connections: int = limit(1_024, "Most open connections of a process.")
    batch_tokens: int = limit(2_048, "Tokens that are read together; a larger request is read in several batches.")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise TwofoldError(f"{name} must be above 0, not {value}")


@dataclass(frozen=True)
class Settings:
    """Settings of the service."""

    served: tuple[str, ...] = ("default",)
    """Models and indexes: folders, hub ids and names, each optionally as `name=PATH`."""
    host: str = "127.0.0.1"
    port: int = 8000
    """Port; 0 takes a free one."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Bearer keys, any of which opens all routes; without one, everybody may ask."""
    hosts: tuple[str, ...] = ()
    """Further names under which clients without a key may reach it; by default those of this machine."""
    workers: int = 1
    """Number of processes, each with its own models."""
    log: bool = True
    """Writes an access log to standard error."""
    log_texts: bool = False
    """Writes bodies of requests into the access log."""
    device: str = "auto"
    runtime: str = "auto"
    precision: str = "auto"
    allow_code: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise TwofoldError(f"port must be from 0 to 65535, not {self.port}")
        if self.workers < 1:
            raise TwofoldError(f"workers must be at least 1, not {self.workers}")
        if any(not key or not key.isascii() or not key.isprintable() or " " in key for key in self.keys):
            raise TwofoldError("a key is empty, or holds blanks or characters that no header can; choose another")

    @property
    def open_to_all(self) -> bool:
        """True if other machines may ask without a key."""
        return self.host not in LOOPBACK and not self.keys
