"""Encoders computed by an engine: their graph is made once, checked against torch and kept in a cache."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold import storage
from twofold.errors import TwofoldError
from twofold.precision import processor_flags
from twofold.runtime import graph, store
from twofold.runtime.flat import Signature, constants, flatten, rebuilt, signature_of
from twofold.runtime.store import Record
from twofold.types import Batch, Encoder, Hidden

LARGEST_DIFFERENCE = 1e-5
"""Largest difference from torch in float32, as a share of the largest value or of one."""
LEAST_COSINE = 0.9999
"""Least mean cosine with torch in bfloat16."""
MOST_FORMS = 8
"""Number of graphs of one encoder; batches of further forms, such as images of many sizes, are computed by torch."""

Run = Callable[[Mapping[str, NDArray[Any]]], list[NDArray[Any]]]


@dataclass(frozen=True)
class Form:
    """Graph for batches of one form, ready to run."""

    run: Run
    signature: Signature
    template: Hidden
    """Hidden states of the sample, for everything that is not a tensor."""
    threads: int


class CompiledEncoder:
    """Encoder that an engine computes. Each form of batches, such as with segments, has a graph of its own."""

    def __init__(self, encoder: Encoder, engine: ModuleType, precision: str, announce: Callable[[], None]) -> None:
        self.encoder, self.engine, self.precision, self.announce = encoder, engine, precision, announce
        self.name = engine.__name__.rsplit(".", 1)[-1]
        self._forms: dict[object, Form | None] = {}
        self._tables = [table for module in encoder.modules() for table in _tables(module)]
        self._weights = self._versions()
        self._process = os.getpid()

    def __call__(self, batch: Batch) -> Hidden | None:
        """Computes the hidden states; None if torch must compute them."""
        tensors = dict(flatten(batch))
        if any(tensor.device.type != "cpu" for tensor in tensors.values()) or self._process != os.getpid():
            return None
        if self._weights != self._versions():  # someone has changed the weights since
            return None
        form = self.form(batch)
        if form is None or any(size == 0 for tensor in tensors.values() for size in tensor.shape):
            return None
        try:
            return self._computed(form, batch, tensors)
        except Exception as error:  # engines raise plain exceptions
            self._forms[_form_key(batch)] = None
            self._say(f"cannot compute a batch ({str(error).splitlines()[0] if str(error) else type(error).__name__})")
            return None

    def _computed(self, form: Form, batch: Batch, tensors: Mapping[str, Tensor]) -> Hidden:
        outputs = form.run(graph.arrays({name: tensors[name] for name in form.signature.takes}))
        given = zip(form.signature.gives, outputs, strict=True)
        computed = {name: torch.from_numpy(np.array(value)) for name, value in given}
        passed = {name: tensors[source] for name, source in form.signature.passes}
        hidden: Hidden = rebuilt(form.template, {**computed, **passed})
        return hidden

    def form(self, batch: Batch) -> Form | None:
        """Returns the graph for batches of this form, made first if there is none; None if torch must compute them."""
        key, threads = _form_key(batch), torch.get_num_threads()
        form = self._forms.get(key)
        if key not in self._forms and len(self._forms) >= MOST_FORMS:
            return None
        if key not in self._forms or (form is not None and form.threads != threads):
            form = self._forms[key] = self._opened(batch, threads)
        return form

    def _opened(self, batch: Batch, threads: int) -> Form | None:
        """Opens the graph of a form of batches, and makes it first if it is not there or does not suit this machine."""
        try:
            return self._open(batch, threads)
        except TwofoldError as error:
            self._say(str(error))
        except OSError as error:
            self._say(f"its file cannot be kept in the cache folder ({error.strerror or error})")
        return None

    def _open(self, batch: Batch, threads: int) -> Form:
        hidden = self._by_torch(batch)
        signature = signature_of(batch, hidden)
        folder = store.engines_folder() / graph.fingerprint(self.encoder, batch)
        record, form = self._record(folder / store.GRAPH), None
        if record is None:
            self._make(folder, batch, signature)
            record, form = self._check(folder, batch, signature, hidden, threads)
            store.write_record(folder, record)
        if record.refused:
            raise TwofoldError(record.refused)
        store.mark_used(folder)
        return form or Form(self.engine.load(folder / store.GRAPH, self.precision, threads), signature, hidden, threads)

    def _record(self, path: Path) -> Record | None:
        return store.known_record(
            path, self.name, self.precision, self.engine.version(), lambda what: self._say(what, "")
        )

    def _make(self, folder: Path, batch: Batch, signature: Signature) -> None:
        def write(aside: Path) -> None:
            self.announce()
            graph.export(self.encoder, batch, signature, aside / store.GRAPH)

        if not (folder / store.GRAPH).is_file():
            shutil.rmtree(folder, ignore_errors=True)  # of a graph that was damaged
            store.add_folder(folder, write)

    def _check(
        self, folder: Path, batch: Batch, signature: Signature, hidden: Hidden, threads: int
    ) -> tuple[Record, Form | None]:
        """Compares the engine with torch on the sample and on parts of it."""
        path = folder / store.GRAPH
        about: dict[str, Any] = {"takes": signature.takes, "gives": signature.gives}
        known = (self.name, self.precision, self.engine.version(), list(processor_flags()), storage.sha256(path), about)
        try:
            form = Form(self.engine.load(path, self.precision, threads), signature, hidden, threads)
            largest = 0.0
            for part in _parts(batch):
                ours = self._computed(form, part, dict(flatten(part)))
                largest = max(largest, self._difference(ours, self._by_torch(part), signature))
        except TwofoldError as error:
            return Record(*known, refused=str(error)), None
        except Exception as error:  # engines raise plain exceptions
            reason = str(error).splitlines()[0] if str(error) else ""
            return Record(*known, refused=f"{type(error).__name__}: {reason}"[:200]), None
        return Record(*known, largest_difference=largest), form

    def _difference(self, ours: Hidden, theirs: Hidden, signature: Signature) -> float:
        """Returns the largest difference of a batch; one beyond the tolerance is an error."""
        mine, right, largest = dict(flatten(ours)), dict(flatten(theirs)), 0.0
        for name in signature.gives:
            values, expected = mine[name].float(), right[name].float()
            if values.shape != expected.shape:
                raise TwofoldError(f"{name} has the shape {tuple(values.shape)}, not {tuple(expected.shape)}")
            if name == "states":
                values, expected = values[ours.mask], expected[ours.mask]
            difference = float((values - expected).abs().max()) / max(1.0, float(expected.abs().max()))
            cosine = float(torch.cosine_similarity(values, expected, dim=-1).mean())
            far = difference > LARGEST_DIFFERENCE if self.precision == "float32" else cosine < LEAST_COSINE
            if far or not np.isfinite(difference):
                raise TwofoldError(f"{name} differ from torch by {difference:.1e} (cosine {cosine:.6f})")
            largest = max(largest, difference)
        return largest

    def _versions(self) -> list[int]:
        """Returns a value that changes when any weight or layer is changed in place or replaced."""
        versions: list[int] = []
        for table in self._tables:
            for part in table.values():
                if isinstance(part, Tensor):
                    versions += (part._version, part.data_ptr())
                else:
                    versions.append(id(part))
        return versions

    def _by_torch(self, batch: Batch) -> Hidden:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return self.encoder.forward(batch)

    def _say(self, reason: str, still: str = "; torch is used") -> None:
        warnings.warn(f"{self.name}, {type(self.encoder).__name__}: {reason}{still}", stacklevel=2)


def _form_key(batch: Batch) -> object:
    """Everything that a graph has built in: constants, and the sizes of images."""
    sizes = [(name, str(graph.constant_sizes(tensor))) for name, tensor in flatten(batch)]
    return tuple(sorted([*sizes, *((name, str(value)) for name, value in constants(batch))]))


def _parts(batch: Batch) -> list[Batch]:
    """Returns a batch, its first row alone, its rows twice, and the first half of its positions."""
    tensors = dict(flatten(batch))
    positions = max((tensor.shape[1] for tensor in tensors.values() if tensor.ndim > 1), default=1)
    first = {name: tensor[:1] for name, tensor in tensors.items()}
    twice = {name: torch.cat([tensor, tensor]) for name, tensor in tensors.items()}
    half = {
        name: tensor[:, : -(-positions // 2)] if _has_positions(tensor, positions) else tensor
        for name, tensor in tensors.items()
    }
    return [batch, *(rebuilt(batch, part) for part in (first, twice, half))]


def _has_positions(tensor: Tensor, positions: int) -> bool:
    return tensor.ndim in (2, 3) and tensor.shape[1] == positions


def _tables(module: torch.nn.Module) -> list[Mapping[str, object]]:
    """Tables of a module that hold its weights and layers; walking through them anew takes longer than a short text."""
    tables: list[Mapping[str, object]] = [module._parameters, module._buffers, module._modules]
    return [table for table in tables if table]
