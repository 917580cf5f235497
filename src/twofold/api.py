"""Python functions for what the command line does: load a model, evaluate it, build and open an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from twofold import runtime as runtimes
from twofold.data.candidates import Candidate, Texts
from twofold.data.files import Row, Where
from twofold.data.label_columns import warn_of_unread_columns
from twofold.data.memory import RowsInMemory, is_file_name, list_in_memory, rows_in_memory
from twofold.data.passages import Sizes
from twofold.data.ranking import AUTO
from twofold.data.top_k import as_k
from twofold.errors import TwofoldError, did_you_mean, kind_of_value
from twofold.generate.search import GenerateOptions
from twofold.metrics import Report
from twofold.metrics import evaluate as evaluate_rows
from twofold.model import Model, Ranker
from twofold.model.load import load as load_model
from twofold.model.load import load_ranker as ranker_named
from twofold.model.model import make_device
from twofold.model.saved import OutsideCodeError
from twofold.progress import Report as Progress
from twofold.progress import bar

if TYPE_CHECKING:  # these take a while to import
    from twofold.exporting import Exported
    from twofold.index import Index

Loaded = TypeVar("Loaded", bound=Model)
FAMILY_SETTINGS = ("tokenize", "candidates", "timed")
"""Settings of `evaluate` that metric families read."""


class EvaluationSettings(TypedDict, total=False):
    """Further settings of `evaluate`: `tokenize` is for models that write texts, all others are for rankers."""

    tokenize: str
    """Tokenizer of sacrebleu for BLEU; by default ko-mecab for Korean where it is installed, else 13a."""
    candidates: int
    """Number of candidates of each pair: its right responses and responses of other pairs; default 10."""
    timed: int
    """Number of contexts that are ranked one at a time to measure milliseconds; default 100, 0 measures none."""
    form: str
    """Published form of the data, such as `ubuntu_v2`; default `auto`."""
    corpus: Texts
    """Texts with ids, or their file, from which the `relevant` ids of each row are retrieved."""
    reverse: bool
    """Ranks contexts for candidates, which a `bi` can."""
    then: Sequence[tuple[Ranker | str | Path, int]]
    """Later stages of a cascade: rankers, each with the number of candidates that it re-ranks."""


@overload
def load(
    model: Literal["default", "default-multilingual", "default-multilingual-e5", "default-reranker"],
    device: str = "auto",
    allow_code: bool = False,
    runtime: str = "auto",
    precision: str = "auto",
) -> Ranker: ...


@overload
def load(
    model: str | Path, device: str = "auto", allow_code: bool = False, runtime: str = "auto", precision: str = "auto"
) -> Model: ...


def load(
    model: str | Path, device: str = "auto", allow_code: bool = False, runtime: str = "auto", precision: str = "auto"
) -> Model:
    """Loads a model, ready to use: a `Model`, or a `Ranker` if it ranks candidates.

    model: folder of a training or its `model/`; folder or hub id of a backbone; a named model (`twofold list models`)
    device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`
    allow_code: import parts from outside twofold that the model names
    runtime: `torch`, `openvino` or `onnxruntime`; `auto` takes OpenVINO where the extra `fast` is installed;
        `ctranslate2` writes the texts of Transformers from text to text
    precision: `float32` or `bfloat16`; `auto` takes bfloat16 where the processor computes it natively; `int8` is for
        `ctranslate2`
    """
    return _computing(load_model(model, allow_code), device, runtime, precision, model)


def load_ranker(
    model: str | Path, device: str = "auto", allow_code: bool = False, runtime: str = "auto", precision: str = "auto"
) -> Ranker:
    """Loads a model that ranks candidates; any other model is an error. The arguments are those of `load`."""
    return _computing(ranker_named(model, allow_code), device, runtime, precision, model)


def _computing(model: Loaded, device: str, runtime: str, precision: str, title: str | Path) -> Loaded:
    """Moves a model to its device and gives it its precision and engine."""
    model.to(make_device(device))
    runtimes.install(model, runtime, precision, str(title))
    return model


def load_stages(
    first: Ranker, then: Sequence[tuple[Ranker | str | Path, int]], **loading: Any
) -> list[tuple[Ranker, int]]:
    """Loads the later stages of a cascade; each reads the same types as the first stage.

    loading: how the rankers are loaded, as the arguments of `load`
    """
    stages = []
    for given, depth in then:
        ranker = given if isinstance(given, Ranker) else load_ranker(given, **loading)
        name = f"--then {given}" if isinstance(given, str | Path) else f"then {ranker.kind}"
        sides = {"contexts": (first.contexts, ranker.contexts), "candidates": (first.candidates, ranker.candidates)}
        for what, (ours, theirs) in sides.items():
            if ours.config.gives is not theirs.config.gives:
                told = f"its {what} are {theirs.config.noun}s, those of the first stage {ours.config.noun}s"
                raise TwofoldError(f"{name}: {told}; name a ranker of the same types")
        stages.append((ranker, as_k(depth)))
    return stages


def evaluate(
    model: Model | str | Path,
    data: Where | Path | RowsInMemory,
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    progress: Progress | None = None,
    folder: str | None = None,
    show: bool = False,
    **settings: Unpack[EvaluationSettings],
) -> Report:
    """Evaluates a model on rows: by the metrics of its outputs, or for rankers by ranking or by retrieval.

    data: file or files; or rows in memory: dicts, a `datasets.Dataset` or a DataFrame with the columns of the training
    options: beam, length penalty and so on of generated texts; by default those saved with the model
    decoder: name of one decoder; by default all decoders are evaluated
    folder: folder or zip archive of images or sounds that the rows name; by default the folder of their table
    show: draw a progress bar on standard error
    """
    judged = load(model) if isinstance(model, str | Path) else model
    _check_settings(judged, settings)
    if isinstance(judged, Ranker):
        judged = judged.reversed() if settings.get("reverse") else judged
    rows = _rows(judged, data, folder, settings.get("form", AUTO))
    further: dict[str, Any] = {name: value for name, value in settings.items() if name in FAMILY_SETTINGS}
    corpus: list[Candidate] = []
    if isinstance(judged, Ranker):
        further["then"] = load_stages(judged, settings.get("then", ()))
        if (given := settings.get("corpus")) is None:
            warn_of_unread_columns(rows, judged.reader.columns)
        else:
            given = given if is_file_name(given) else list_in_memory(given, "corpus")
            corpus = list(judged.candidates.candidates(given, blank=True))
    title, total = ("encoding the corpus", len(corpus)) if corpus else ("evaluating", len(rows))
    with bar(title, total, show=show) as drawn:
        return evaluate_rows(judged, rows, options, decoder, None, progress or drawn, corpus, **further)


def _check_settings(model: Model, settings: EvaluationSettings) -> None:
    """Refuses unknown settings, and those that do not suit the model."""
    known = EvaluationSettings.__annotations__
    for name in settings:
        if name not in known:
            raise TypeError(f"evaluate() has no setting '{name}'; {did_you_mean(name, known)}")
        if not isinstance(model, Ranker) and name != "tokenize":
            raise TwofoldError(f"{name} is for rankers; leave it out")


def _rows(model: Model, data: Where | Path | RowsInMemory, folder: str | None, form: str) -> list[Row]:
    """Reads all rows, from files or from memory."""
    sources: list[Any] = [data] if is_file_name(data) else list_in_memory(data, "data")
    if not is_file_name(data) and not any(isinstance(source, str | Path) for source in sources):
        return list(rows_in_memory(sources))
    rows: list[Row] = []
    for source in sources:
        if source is not data and not isinstance(source, str | Path):
            raise TwofoldError(f"data: {kind_of_value(source)} among names of files; give files or rows, not both")
        where: Any = str(source) if isinstance(source, Path) else source
        rows += model.read(where, folder, form) if isinstance(model, Ranker) else model.read(where, folder)
    return rows


def export(
    model: Model | str | Path,
    out: str | Path,
    to: str = "onnx",
    int8: bool = False,
    rows: Where | Path | RowsInMemory | None = None,
) -> Exported:
    """Writes a model to a new folder in the format of other programs, with a certificate of its parity with torch.

    model: model, or its folder or name; of the folder of a training, the card tells the data and the results
    to: `onnx`, `openvino`, `ctranslate2` or `sentence-transformers`
    int8: ONNX only: weights in int8, refused if R@1 on `rows` falls by more than .005
    """
    from twofold import exporting

    training = None if isinstance(model, Model) else Path(model)
    try:
        given = model if isinstance(model, Model) else load(model, "cpu", runtime="torch", precision="float32")
    except OutsideCodeError as error:
        exporting.refuse_own_parts(iter([error.kind]))
        raise
    measured = [] if rows is None else _rows(given, rows, None, AUTO)
    return exporting.export(given, out, to, training, int8, measured)


def build_index(
    folder: str | Path,
    model: Ranker | str | Path,
    texts: Texts,
    stored: str | None = None,
    device: str = "auto",
    allow_code: bool = False,
    show: bool = False,
    reverse: bool = False,
    split: Sizes | None = None,
    runtime: str = "auto",
    precision: str = "auto",
    processes: int | Literal["auto"] = 1,
) -> Index:
    """Encodes candidates and stores their vectors in a folder to search.

    texts: file, or texts or rows in memory: dicts, a `datasets.Dataset` or a DataFrame
    stored: float32, float16 or int8; by default float32, or float16 where a candidate has several vectors
    show: draw a progress bar on standard error
    reverse: store contexts, to be found by candidates, which a `bi` can
    split: `TOKENS:OVERLAP` cuts long texts into passages of at most so many tokens; a search finds the texts by them
    processes: number of processes that encode texts on a CPU; `auto` is one for each core, and one for few texts
    """
    from twofold.index import Index
    from twofold.runtime.workers import Processes

    loading = (device, allow_code, runtime, precision)
    ranker = model if isinstance(model, Ranker) else load_ranker(model, *loading)
    ranker = ranker.reversed() if reverse else ranker
    name = "" if isinstance(model, Ranker) else str(Path(model).resolve() if Path(model).exists() else model)
    start = Processes(name, processes, allow_code).started
    return Index.build(folder, ranker, texts, stored, name, show, split, start)


def open_index(
    folder: str | Path,
    model: Ranker | str | Path | None = None,
    device: str = "auto",
    allow_code: bool = False,
    runtime: str = "auto",
    precision: str = "auto",
) -> Index:
    """Opens an index; it finds its model by itself unless that was moved.

    runtime, precision: `auto` takes those that the index was built with
    """
    from twofold.index import Index

    def load_as_built(name: str | Path, built: Mapping[str, str]) -> Ranker:
        return load_ranker(name, device, allow_code, **runtimes.as_built(built, runtime, precision))

    return Index(folder, model, load_as_built)
