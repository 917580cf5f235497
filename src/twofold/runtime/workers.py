"""Worker processes that encode candidates beside this one: started by name, asked through pipes, never forked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.errors import TwofoldError, one_line
from twofold.model.ranker import Ranker
from twofold.runtime import light_files, light_ranker
from twofold.runtime.encoding import Encode, encoder_of
from twofold.runtime.frames import Frame, receive, send

AUTO = "auto"
LEAST_TEXTS = 8192
"""Number of texts from which `auto` starts processes: fewer are encoded before a process has loaded its model."""
MEMORY_EACH = 2 << 30
"""Bytes of this machine's memory for each process of `auto`."""
AGAIN = "texts that count already are kept: run the same command again to go on, or give --processes 1"


@dataclass(frozen=True)
class Processes:
    """Number of processes that encode candidates, and how a process loads the model."""

    name: str
    """Folder or name of the model; empty if only this process has it."""
    count: int | str = AUTO
    """Number of processes, this one included; `auto` takes one for each of torch's threads, and one for few texts."""
    allow_code: bool = False

    def __post_init__(self) -> None:
        if self.count != AUTO and (isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1):
            raise TwofoldError(f"processes: {self.count!r} is neither a whole number from 1 on nor auto")

    @contextlib.contextmanager
    def started(self, ranker: Ranker, texts: int) -> Iterator[Workers | None]:
        """Starts the processes for a number of texts; None if this process encodes alone."""
        count, misfit = self.count, self._misfit(ranker)
        if isinstance(count, str):
            count = 1 if misfit or texts < LEAST_TEXTS else min(torch.get_num_threads(), _most_in_memory())
        elif count > 1 and misfit:
            raise TwofoldError(f"processes: {misfit}; leave it out")
        if count == 1:
            yield None
            return
        with contextlib.closing(Workers(ranker, self._about(ranker), count)) as workers, ranker.evaluating():
            yield workers

    def _misfit(self, ranker: Ranker) -> str:
        """Reason why only this process can encode; empty if there is none."""
        if not self.name:
            return "other processes load the model by name, and it was given as an object"
        if not ranker.candidates.config.without_torch:
            return "the model's candidates are not texts"
        if ranker.device.type != "cpu":
            return f"the model computes on {ranker.device.type}"
        return "" if sys.executable else "there is no Python to start"

    def _about(self, ranker: Ranker) -> dict[str, Any]:
        """Describes the model for a process; prepares what it needs to encode without torch."""
        named = {"name": self.name, **ranker.computing}
        folder = light_ranker.folder_for(**named)
        if folder is not None and not ranker.is_reversed:
            light_files.write(ranker, folder)
        return {**named, "reversed": ranker.is_reversed, "allow_code": self.allow_code, "model": ranker.fingerprint()}


class Workers:
    """Processes that encode candidates, and a thread for each that asks it; the first thread encodes here."""

    def __init__(self, ranker: Ranker, about: Mapping[str, Any], count: int) -> None:
        self._threads_before = torch.get_num_threads()
        each = max(1, self._threads_before // count)
        torch.set_num_threads(each)
        self._workers = [Worker(about, each) for _ in range(count - 1)]
        self._unused: deque[Encode] = deque([encoder_of(ranker), *(worker.encode for worker in self._workers)])
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(count, "twofold-encode", self._begin)

    def encode(self, items: Sequence[NDArray[Any]]) -> Future[Sequence[NDArray[Any]]]:
        """Encodes texts, given as token ids, that are read together: vectors as stored, and the number of each text."""
        return self._threads.submit(lambda: self._own.encode(items))

    def close(self) -> None:
        """Ends all processes, whatever they are doing."""
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(cancel_futures=True)
        torch.set_num_threads(self._threads_before)

    def _begin(self) -> None:
        """Gives a thread what it encodes by."""
        self._own.encode = self._unused.popleft()


class Worker:
    """One process."""

    def __init__(self, about: Mapping[str, Any], threads: int) -> None:
        self._about, self._ready, self._closed = about, False, False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        posix = os.name == "posix"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "twofold.runtime.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)},
            start_new_session=posix,  # Ctrl-C is for this process, which ends the others
            creationflags=0 if posix else subprocess.CREATE_NEW_PROCESS_GROUP,  # type: ignore[attr-defined,unused-ignore]
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._questions, self._answers = self.process.stdin, self.process.stdout
        self._send(Frame(about))

    def encode(self, items: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Vectors of texts, given as token ids, and the number of each."""
        if not self._ready:
            if self._receive().about["model"] != self._about["model"]:
                raise TwofoldError(f"{self._about['name']}: has changed since it was loaded; {AGAIN}")
            self._ready = True
        self._send(Frame({}, [np.array(list(map(len, items))), np.concatenate(items)]))
        return self._receive().arrays

    def close(self) -> None:
        """Ends the process."""
        self._closed = True
        self.process.kill()
        self.process.wait()
        for stream in (self._questions, self._answers, self._said):
            with contextlib.suppress(OSError):
                stream.close()

    def _send(self, frame: Frame) -> None:
        with contextlib.suppress(BrokenPipeError):  # the answer, or its end, says why
            send(self._questions, frame)

    def _receive(self) -> Frame:
        with contextlib.suppress(EOFError, OSError, ValueError):
            frame = receive(self._answers)
            if frame is not None and "error" in frame.about:
                raise TwofoldError(str(frame.about["error"]))
            if frame is not None:
                return frame
        raise TwofoldError(f"a process that encodes texts has ended ({self._end()}); {AGAIN}")

    def _end(self) -> str:
        """Describes how the process has ended."""
        if self._closed:
            return "it was not needed any more"
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"status {status}" + (f": {one_line(lines[-1])}" if lines else "")


def _most_in_memory() -> int:
    """Returns the number of processes for which this machine has memory."""
    try:
        return max(1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEMORY_EACH)
    except (AttributeError, ValueError, OSError):  # other systems do not tell
        return 4
