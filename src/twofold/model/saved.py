"""A model as a folder: safetensors for the weights, JSON for settings and tokenizers, never pickle."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold import storage
from twofold.config import FILE, structure, unstructure
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import ANYWAY, TwofoldError, listed
from twofold.inputs import INPUT
from twofold.layers.sizes import Shapes, built_without_memory
from twofold.model.config import ModelConfig
from twofold.storage.special_files import refuse_special

FORMAT = 2
WEIGHTS, CONFIG = "model.safetensors", "config.json"
REMEDY = "train or copy the model again"
OWN_CHANGE = f'{REMEDY}, or remove its line "{storage.CHECKSUM}" if you changed it'

MODEL_TYPE = "model_type"
"""What the settings of a folder of transformers have, and ours have not."""
CODE = "code"
"""The folder of a user's own parts beside a model."""


@dataclass(frozen=True)
class Saved:
    """What a folder holds, apart from the weights."""

    path: Path
    """Where the model lies: a training folder holds it in `model/`."""
    config: ModelConfig
    tokenizers: dict[str, TextTokenizer]
    sha256: str | None
    """The checksum of the weights."""

    @property
    def reads(self) -> TextTokenizer | None:
        """That of the texts which its encoder reads; what is read beside an image is cut as what is written."""
        beside = self.config.encoder.beside() is not None
        return self.tokenizers.get(INPUT, next(iter(self.tokenizers.values())) if beside else None)


def is_backbone(folder: Path) -> bool:
    """Whether it is a folder that transformers would load."""
    file = folder / CONFIG
    if not file.is_file():
        return False
    try:
        refuse_special(file)
        about = storage.parse_json(file.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and MODEL_TYPE in about


def write(model: nn.Module, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer], folder: Path) -> None:
    """Write everything aside, then put it in its place as one folder."""
    with storage.new_folder(folder) as aside:
        storage.write_tensors(aside / WEIGHTS, unique_tensors(model), {"format": str(FORMAT)})
        files: dict[str, tuple[str, TextTokenizer]] = {}
        for name, tokenizer in tokenizers.items():
            same = next((file for file, other in files.values() if other is tokenizer), None)
            files[name] = (same or f"tokenizer.{name}.json", tokenizer)
            if same is None:
                tokenizer.save(aside / files[name][0])
        code: dict[str, str] = {}
        kept = replace(config, input=config.input.in_folder(None))  # a folder of this machine
        settings = _with_code(unstructure(kept), lambda kind: _copy_code(Path(kind), aside, code))
        about = {
            "format": FORMAT,
            "sha256": storage.sha256(aside / WEIGHTS),
            "tokenizers": {name: file for name, (file, _) in files.items()},
            "tokenizer_sha256": {file: storage.sha256(aside / file) for file, _ in files.values()},
            "code_sha256": code,
            "model": settings,
        }
        storage.write_checked_json(aside / CONFIG, about)


def _copy_code(path: Path, folder: Path, sums: dict[str, str]) -> str:
    """Keep a user's own part beside the model that needs it; gives the kind under which it is found there."""
    content = path.read_bytes()
    name = f"{CODE}/{path.name}"
    while name in sums and sums[name] != hashlib.sha256(content).hexdigest():  # two files of one name
        name = f"{name.removesuffix(FILE)}_{FILE}"
    (folder / CODE).mkdir(exist_ok=True)
    storage.write_bytes(folder / name, content)
    sums[name] = hashlib.sha256(content).hexdigest()
    return f"./{name}"


def _with_code(settings: Any, place: Callable[[str], str]) -> Any:
    """Settings in which each kind that is a user's own file is what `place` makes of it."""
    if isinstance(settings, list):
        return [_with_code(value, place) for value in settings]
    if not isinstance(settings, dict):
        return settings
    kind = settings.get("kind")
    changed = {name: _with_code(value, place) for name, value in settings.items()}
    for name in ("metrics",):  # names of metric families, some of which may be files
        if isinstance(changed.get(name), list):
            changed[name] = [place(value) if _is_file(value) else value for value in changed[name]]
    return {**changed, "kind": place(str(kind))} if _is_file(kind) else changed


def _is_file(kind: object) -> bool:
    return isinstance(kind, str) and kind.endswith(FILE)


def read(folder: Path, allow_code: bool) -> Saved:
    """The settings and tokenizers of a model."""
    path = _find(folder)
    about = storage.read_json(path / CONFIG, REMEDY)
    if MODEL_TYPE in about:
        raise TwofoldError(
            f"{path}: a folder of transformers, not one that `twofold train` wrote; name it in a recipe: encoder={path}"
        )
    if (number := about.get("format")) != FORMAT:
        remedy = "update twofold" if isinstance(number, int) and number > FORMAT else "train it anew"
        raise TwofoldError(f"{path}: saved in format {number}, this version reads {FORMAT}; {remedy}")
    _refuse_code(about.get("model"), path, allow_code)
    sums = structure(about.get("code_sha256", {}), dict[str, str], f"{path / CONFIG}: code_sha256")
    settings = _with_code(about.get("model"), lambda kind: _find_code(kind, path, sums))
    try:
        config = structure(settings, ModelConfig, f"{path / CONFIG}: model")
    except TwofoldError as error:
        if "\n" in str(error):  # of a damaged file one line is enough
            storage.check_content(about, path / CONFIG, OWN_CHANGE)
        raise
    tokenizers = _read_tokenizers(about, path, config.tokenizers())
    storage.check_content(about, path / CONFIG, OWN_CHANGE)
    sha256 = about.get("sha256")
    return Saved(path, config, tokenizers(), sha256 if isinstance(sha256, str) else None)


def _find_code(kind: str, path: Path, sums: Mapping[str, str]) -> str:
    """The file of a user's own part, if it is the one that was saved."""
    name = kind.removeprefix("./")
    file = path / name
    if name not in sums or Path(name).parent != Path(CODE) or not file.is_file() or storage.sha256(file) != sums[name]:
        raise TwofoldError(f"{file}: not the code that the model was saved with; {REMEDY}")
    return str(file)


def _read_tokenizers(
    about: dict[str, Any], path: Path, needed: tuple[str, ...]
) -> Callable[[], dict[str, TextTokenizer]]:
    """Check the files of the tokenizers; gives what loads them."""
    files = structure(about.get("tokenizers"), dict[str, str], f"{path / CONFIG}: tokenizers")
    if files.keys() != set(needed) or any(Path(file).name != file for file in files.values()):
        raise TwofoldError(
            f"{path / CONFIG}: must name a tokenizer file for each of {', '.join(sorted(needed))}; {REMEDY}"
        )
    expected = structure(about.get("tokenizer_sha256", {}), dict[str, str], f"{path / CONFIG}: tokenizer_sha256")
    for file in set(files.values()) & expected.keys():
        if (path / file).is_file() and storage.sha256(path / file) != expected[file]:
            raise TwofoldError(
                f"{path / file}: not the tokenizer that the weights beside it were trained with, or damaged; {REMEDY}"
            )

    def load() -> dict[str, TextTokenizer]:
        loaded = {file: TextTokenizer.load(path / file) for file in set(files.values())}
        return {name: loaded[file] for name, file in files.items()}

    return load


def check_sizes(build: Callable[[], nn.Module], found: Saved) -> None:
    """Refuse settings that are not those of the weights beside them before memory is taken for what they ask."""
    path, place = found.path / WEIGHTS, found.path / CONFIG
    shapes = storage.tensor_shapes(path, REMEDY)
    try:
        model = built_without_memory(build, unstructure(found.config), shapes, place, REMEDY)
    except TwofoldError as error:
        raise error if str(error).startswith(str(place)) else TwofoldError(f"{place}: {error}") from error
    if model is not None:
        _refuse_misfits({name: tuple(tensor.shape) for name, tensor in unique_tensors(model).items()}, shapes, path)


def load_weights(model: nn.Module, folder: Saved) -> None:
    """Fill the model; what is missing, left over or of another shape is named."""
    fill(model, read_weights(folder), folder.path / WEIGHTS)


def read_weights(folder: Saved) -> dict[str, Tensor]:
    """The tensors of a saved model, by name, if they are whole."""
    path = folder.path / WEIGHTS
    tensors = storage.read_tensors(path, REMEDY)
    if storage.sha256(path) != folder.sha256:
        raise TwofoldError(f"{path}: damaged, its checksum is not the one in {CONFIG}; {REMEDY}")
    return tensors


def fill(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy tensors by name into the model, all or none."""
    own = unique_tensors(model)
    expected, given = ({name: tuple(one.shape) for name, one in tensors.items()} for tensors in (own, tensors))
    _refuse_misfits(expected, given, path)
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def _refuse_misfits(expected: Shapes, given: Shapes, path: Path) -> None:
    """Name the tensors that are missing, left over or of another shape."""
    wrong = [f"{name} is missing" for name in expected if name not in given]
    wrong += [f"{name} is not in the model" for name in given if name not in expected]
    wrong += [
        f"{name} is {given[name]}, not {expected[name]}"
        for name in expected
        if name in given and given[name] != expected[name]
    ]
    if wrong:
        raise TwofoldError(f"{path}: does not fit the model: {listed(wrong)}")


def take(model: nn.Module, theirs: Mapping[str, Tensor], path: Path, anyway: bool = False) -> None:
    """Begin with the weights of another model as far as they fit; all of the encoder must unless `anyway`."""
    own = unique_tensors(model)
    taken = {n: theirs[n] for n, v in own.items() if n in theirs and theirs[n].shape == v.shape}
    wrong = [
        f"{name} {tuple(own[name].shape)}"
        + (f", there {tuple(theirs[name].shape)}" if name in theirs else ", not there")
        for name in own
        if name.startswith("encoder.") and name not in taken
    ]
    over = [name for name in theirs if name.startswith("encoder.") and name not in own]
    wrong += [f"{name} {tuple(theirs[name].shape)}, not here" for name in storage.more_of_the_same(over, own)]
    if wrong and not anyway:
        raise TwofoldError(
            f"start: {path} does not fit: {listed(wrong)}; start from a model of the same encoder; {ANYWAY}"
        )
    if wrong and not any(name.startswith("encoder.") for name in taken):
        raise TwofoldError(f"start: nothing of {path} fits: {listed(wrong)}")
    if wrong:
        warnings.warn(f"start: {path} does not fit in all; left out: {listed(wrong)}", stacklevel=4)
    fill(model, {**own, **taken}, path)


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and lasting buffers by name, a tied one once, under its first name."""
    seen: dict[int, str] = {}
    result = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen[id(tensor)] = name
            result[name] = tensor.detach()
    return result


def fingerprint(model: nn.Module, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> str:
    """A hash of all that decides what a model answers: weights, tokenizers and settings."""

    def code_sum(kind: str) -> str:
        return storage.sha256(Path(kind))

    kept = replace(config, input=config.input.in_folder(None))
    digest = hashlib.sha256(json.dumps(_with_code(unstructure(kept), code_sum), sort_keys=True).encode())
    for name, tokenizer in sorted(tokenizers.items()):
        digest.update(f"{name} {tokenizer.fingerprint()}".encode())
    for name, tensor in sorted(unique_tensors(model).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _find(folder: Path) -> Path:
    for path in (folder, folder / "model"):
        if (storage.settled(path) / CONFIG).exists():
            return storage.settled(path)
    if not folder.exists():
        raise TwofoldError(f"{folder}: no such model; MODEL is a folder that `twofold train --out` wrote")
    raise TwofoldError(
        f"{folder}: holds no model ({CONFIG} is missing); give a folder that `twofold train --out` wrote; other "
        "models become one that a recipe can start from by `twofold import`"
    )


def _refuse_code(model: object, path: Path, allow_code: bool) -> None:
    """Stop before importing a part that does not come with twofold."""
    if allow_code or not isinstance(model, dict):
        return
    further = model.get("metrics")
    kinds = [model.get("kind"), *(further if isinstance(further, list) else ())]
    for kind in (kind for kind in kinds if isinstance(kind, str) and "." in kind):
        raise TwofoldError(f"{path}: needs code outside twofold ({kind}); allow it with --allow-code if you trust it")
    for inner in model.values():  # parts stand in fields, in mappings of names, in lists, and inside other parts
        for value in inner if isinstance(inner, list) else (inner,):
            _refuse_code(value, path, allow_code)
