"""Saved models: safetensors for weights, JSON for settings and tokenizers, never pickle."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn

from twofold import storage
from twofold.config import FILE, structure, unstructure
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import ANYWAY, TwofoldError, listed
from twofold.inputs import INPUT
from twofold.layers.sizes import Shapes, built_without_memory
from twofold.model.config import ModelConfig
from twofold.storage import refuse_special

if TYPE_CHECKING:
    from twofold.model.model import Model

FORMAT = 2
WEIGHTS, CONFIG = "model.safetensors", "config.json"
REMEDY = "train or copy the model again"
OWN_CHANGE = f'{REMEDY}, or remove its line "{storage.CHECKSUM}" if you changed it'

MODEL_TYPE = "model_type"
"""Key of the settings in folders of transformers, which ours lack."""
CODE = "code"
"""Folder of a user's own parts inside a model folder."""
Built = TypeVar("Built", bound=nn.Module)


class OutsideCodeError(TwofoldError):
    """Error for a model with a part of the user's own, which was not allowed to run."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(f"{path}: needs code outside twofold ({kind}); allow it with --allow-code if you trust it")
        self.kind = kind


@dataclass(frozen=True)
class Saved:
    """Content of a model folder apart from the weights."""

    path: Path
    """Folder of the model; a training folder holds it in `model/`."""
    config: ModelConfig
    tokenizers: dict[str, TextTokenizer]
    sha256: object
    """SHA-256 of the weights."""

    @property
    def reads(self) -> TextTokenizer | None:
        """Tokenizer of the texts that the encoder reads; a text beside an image has that of the output."""
        beside = self.config.encoder.beside() is not None
        return self.tokenizers.get(INPUT, next(iter(self.tokenizers.values())) if beside else None)


def is_backbone(folder: Path) -> bool:
    """Returns True for a folder that transformers would load."""
    with suppress(OSError, ValueError):
        refuse_special(folder / CONFIG)
        about = storage.parse_json((folder / CONFIG).read_bytes())
        return isinstance(about, dict) and MODEL_TYPE in about
    return False


def save_pretrained(model: Model, folder: str | Path) -> None:
    """Writes weights, settings and tokenizers into a folder, which replaces an older one as a whole."""
    with storage.new_folder(Path(folder)) as aside:
        storage.write_tensors(aside / WEIGHTS, unique_tensors(model), {"format": str(FORMAT)})
        files: dict[str, str] = {}
        for name, tokenizer in model.tokenizers.items():
            same = next((file for other, file in files.items() if model.tokenizers[other] is tokenizer), None)
            files[name] = same or f"tokenizer.{name}.json"
            if same is None:
                tokenizer.save(aside / files[name])
        code: dict[str, str] = {}
        settings = _settings(model.config, lambda path: _copy_code(path, aside, code))
        about = {
            "format": FORMAT,
            "sha256": storage.sha256(aside / WEIGHTS),
            "tokenizers": files,
            "tokenizer_sha256": {file: storage.sha256(aside / file) for file in dict.fromkeys(files.values())},
            "code_sha256": code,
            "model": settings,
        }
        storage.write_checked_json(aside / CONFIG, about)


def _settings(config: ModelConfig, place: Callable[[Path], str]) -> Any:
    """Settings as they are saved; the kinds of a user's own files are renamed by `place`."""
    tasks = {name: replace(task, output=task.output.in_folder(None)) for name, task in config.tasks.items()}
    kept = replace(config, input=config.input.in_folder(None), tasks=tasks)  # without folders of this machine
    return _renamed(unstructure(kept), lambda kind: place(Path(kind)) if kind.endswith(FILE) else kind)


def _renamed(settings: Any, rename: Callable[[str], str], name: str = "") -> Any:
    """Renames the kind of every part and metric family in settings."""
    match settings:
        case dict():
            return {key: _renamed(value, rename, key) for key, value in settings.items()}
        case list():
            return [_renamed(value, rename, name) for value in settings]
        case str() if name in ("kind", "metrics"):
            return rename(settings)
    return settings


def _copy_code(path: Path, folder: Path, sums: dict[str, str]) -> str:
    """Copies a user's own part into the model folder; returns its kind there."""
    content = path.read_bytes()
    sha256, name = hashlib.sha256(content).hexdigest(), f"{CODE}/{path.name}"
    while sums.get(name, sha256) != sha256:  # two files of one name
        name = f"{name.removesuffix(FILE)}_{FILE}"
    (folder / CODE).mkdir(exist_ok=True)
    storage.write_bytes(folder / name, content)
    sums[name] = sha256
    return f"./{name}"


def read(folder: Path, allow_code: bool) -> Saved:
    """Reads the settings and tokenizers of a model."""
    path = _find(folder)
    about = storage.read_json(path / CONFIG, REMEDY)
    if MODEL_TYPE in about:
        raise TwofoldError(
            f"{path}: a folder of transformers, not one that `twofold train` wrote; name it in a recipe: encoder={path}"
        )
    if (number := about.get("format")) != FORMAT:
        remedy = "update twofold" if isinstance(number, int) and number > FORMAT else "train it anew"
        raise TwofoldError(f"{path}: saved in format {number}, this version reads {FORMAT}; {remedy}")
    sums = structure(about.get("code_sha256", {}), dict[str, str], f"{path / CONFIG}: code_sha256")
    settings = _renamed(about.get("model"), lambda kind: _find_code(kind, path, sums, allow_code))
    try:
        config = structure(settings, ModelConfig, f"{path / CONFIG}: model")
    except TwofoldError as error:
        if "\n" in str(error):  # of a damaged file one line is enough
            storage.check_content(about, path / CONFIG, OWN_CHANGE)
        raise
    files = _tokenizer_files(about, path, config.tokenizers())
    storage.check_content(about, path / CONFIG, OWN_CHANGE)
    loaded = {file: TextTokenizer.load(path / file) for file in set(files.values())}
    return Saved(path, config, {name: loaded[file] for name, file in files.items()}, about.get("sha256"))


def _find_code(kind: str, path: Path, sums: Mapping[str, str], allowed: bool) -> str:
    """Returns the file of a user's own part if its SHA-256 is right; refuses code outside twofold unless allowed."""
    if "." in kind and not allowed:
        raise OutsideCodeError(path, kind)
    if not kind.endswith(FILE):
        return kind
    name = kind.removeprefix("./")
    file = path / name
    if name not in sums or Path(name).parent != Path(CODE) or not file.is_file() or storage.sha256(file) != sums[name]:
        raise TwofoldError(f"{file}: not the code that the model was saved with; {REMEDY}")
    return str(file)


def _tokenizer_files(about: dict[str, Any], path: Path, needed: tuple[str, ...]) -> dict[str, str]:
    """Files of the tokenizers by name; refuses files whose checksum is wrong."""
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
    return files


def restored(build: Callable[[], Built], folder: Saved) -> Built:
    """Restores the saved model; settings that do not match the weights are refused before they take memory."""
    path, place = folder.path / WEIGHTS, folder.path / CONFIG
    shapes = storage.tensor_shapes(path, REMEDY)
    try:
        sketch = built_without_memory(build, unstructure(folder.config), shapes, place, REMEDY)
    except TwofoldError as error:
        raise error if str(error).startswith(str(place)) else TwofoldError(f"{place}: {error}") from error
    if sketch is not None:
        _refuse_misfits(_shapes(unique_tensors(sketch)), shapes, path)
    model = build()
    fill(model, read_weights(folder), path)
    return model


def read_weights(folder: Saved) -> dict[str, Tensor]:
    """Reads the tensors of a saved model by name; refuses weights whose checksum is wrong."""
    path = folder.path / WEIGHTS
    tensors = storage.read_tensors(path, REMEDY)
    if storage.sha256(path) != folder.sha256:
        raise TwofoldError(f"{path}: damaged, its checksum is not the one in {CONFIG}; {REMEDY}")
    return tensors


def fill(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copies tensors by name into the model, all or none; names missing, unknown and misshapen tensors."""
    weights = unique_tensors(model)
    _refuse_misfits(_shapes(weights), _shapes(tensors), path)
    for name, weight in weights.items():
        weight.copy_(tensors[name])


def _shapes(tensors: Mapping[str, Tensor]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _refuse_misfits(expected: Shapes, given: Shapes, path: Path) -> None:
    """Names tensors that are missing, unknown or of another shape."""
    wrong = [f"{name} is missing" for name in expected if name not in given]
    wrong += [f"{name} is not in the model" for name in given if name not in expected]
    both = [name for name in expected if name in given]
    wrong += [f"{name} is {given[name]}, not {expected[name]}" for name in both if given[name] != expected[name]]
    if wrong:
        raise TwofoldError(f"{path}: does not fit the model: {listed(wrong)}")


def take(model: nn.Module, theirs: Mapping[str, Tensor], path: Path, anyway: bool = False) -> None:
    """Loads another model's weights as far as they fit; all of the encoder's must fit unless `anyway`."""
    weights = unique_tensors(model)
    here, there = _shapes(weights), _shapes(theirs)
    taken = {name: theirs[name] for name, shape in here.items() if there.get(name) == shape}
    wrong = [
        f"{name} {shape}, {f'there {there[name]}' if name in there else 'not there'}"
        for name, shape in here.items()
        if name.startswith("encoder.") and name not in taken
    ]
    over = [name for name in there if name.startswith("encoder.") and name not in here]
    wrong += [f"{name} {there[name]}, not here" for name in storage.more_of_the_same(over, here)]
    if wrong and not anyway:
        raise TwofoldError(
            f"start: {path} does not fit: {listed(wrong)}; start from a model of the same encoder; {ANYWAY}"
        )
    if wrong and not any(name.startswith("encoder.") for name in taken):
        raise TwofoldError(f"start: nothing of {path} fits: {listed(wrong)}")
    if wrong:
        warnings.warn(f"start: {path} does not fit in all; left out: {listed(wrong)}", stacklevel=4)
    fill(model, {**weights, **taken}, path)


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; a tied one once, under its first name."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor.detach()))
    return dict(named.values())


def fingerprint(model: Model) -> str:
    """Hash of weights, tokenizers and settings; vectors of models with different hashes do not mix."""
    digest = hashlib.sha256(json.dumps(_settings(model.config, storage.sha256), sort_keys=True).encode())
    for name, tokenizer in sorted(model.tokenizers.items()):
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
