"""Settings of the service: where it listens, who may ask, and limits of requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from twofold.errors import TwofoldError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that only this machine reaches."""


@dataclass(frozen=True)
class Limits:
    """Limits of requests. What is beyond them is refused with a status of 4xx, and other requests go on."""

    body: int = 16 << 20
    """Maximum number of bytes of a request's body."""
    texts: int = 10_000
    """Maximum number of texts, images or sounds in a request."""
    tokens: int = 1 << 20
    """Maximum number of tokens in a request, as the model counts them."""
    hits: int = 1_000
    """Maximum number of hits, `k`, and of candidates that a later stage re-ranks."""
    explained: int = 100
    """Maximum number of candidates whose scores a request may have explained."""
    beam: int = 16
    """Maximum number of hypotheses in beam search."""
    pixels: int = 16_000_000
    """Maximum number of pixels of an image."""
    seconds: float = 60.0
    """Maximum number of seconds from the whole request to its answer."""
    read_seconds: float = 20.0
    """Maximum number of seconds in which a client must have sent its request."""
    queue: int = 512
    """Maximum number of requests that wait for a model; a further one is answered 429 with Retry-After."""
    connections: int = 1_024
    """Maximum number of open connections of a process."""
    batch_tokens: int = 2_048
    """Number of tokens that are read together; a larger request is read in several batches, between others."""

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
    log_texts: bool = False
    """Writes texts of requests into the access log."""
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
