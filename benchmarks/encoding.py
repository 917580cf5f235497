"""Encoding sentences beside sentence-transformers: sentences per CPU second of each runtime, measured in turn.

The model is all-MiniLM-L6-v2, the sentences are real ones of about 40 tokens, other ones in each round. Libraries
whose threads may disturb each other run in processes of their own. sentence-transformers' other backends need
packages that exclude ours: give the Python of an environment that has them by `--theirs`, for example

    python -m venv /tmp/st && /tmp/st/bin/pip install torch==2.13.0 'sentence-transformers[openvino]==6.2.0'
    python benchmarks/encoding.py --theirs /tmp/st/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from _common import need, processor_flags, save
from numpy.typing import NDArray

import twofold
from twofold import runtime
from twofold.data.files import read_rows
from twofold.data.named_models import DEFAULT, folder_of

WORKER = Path(__file__).with_name("_encoder.py")
SENTENCES, ROUNDS, SINGLE = 400, 5, 20
BATCHES = (8, 16, 32, 64, 128)
"""Batch sizes of sentence-transformers; 32 is its default."""
TRIED = 160
"""Sentences by which the best batch size is found."""
BASE = "sentence-transformers, torch float32, batch 32"
BEST = "best batch"
OURS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("torch", "float32"), ("torch", "bfloat16"), ("openvino", "float32"), ("openvino", "bfloat16"), ("auto", "auto")),
    (("onnxruntime", "float32"),),
)
"""Our runtimes and precisions, by process."""
ELSEWHERE: tuple[tuple[tuple[str, str], ...], ...] = (
    (("openvino", "float32"), ("openvino", "its own precision")),
    (("onnx", "float32"),),
)
"""Backends that an environment given by `--theirs` may have, by process."""
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OV_CPU_MAX_ISA": "AVX2",
}
"""Environment in which torch and OpenVINO use nothing beyond AVX2."""
UNBOUND = ("onnx", "onnxruntime")
"""Runtimes that no setting binds to AVX2."""
Kinds = tuple[tuple[str, str], ...]


@dataclass
class Way:
    """One way of encoding."""

    name: str
    process: subprocess.Popen[str]
    """Worker, which may have other ways too."""
    asked: str
    """Name by which the worker knows it."""
    versions: dict[str, str]
    batch: int = 32
    many: list[float] = field(default_factory=list)
    """Sentences per CPU second, by round."""
    single: list[float] = field(default_factory=list)
    """CPU milliseconds of one sentence, by round."""

    def seconds(self, texts: list[str], alone: bool = False, save: str = "") -> float:
        """CPU seconds of encoding texts at once, or each alone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"way": self.asked, "texts": texts, "batch": self.batch, "alone": alone, "save": save}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return float(json.loads(self.process.stdout.readline())["seconds"])

    def choose_batch(self, texts: list[str]) -> None:
        """Sets the batch size with the least CPU time."""
        times = {}
        for self.batch in BATCHES:
            times[self.batch] = self.seconds(texts)
        self.batch = min(times, key=times.__getitem__)

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def sentences(count: int) -> list[str]:
    """Different sentences of scifact's abstracts."""
    texts: dict[str, None] = {}
    for row in read_rows(str(need("scifact", "corpus.jsonl.gz"))):
        for sentence in str(row.values["text"]).split(". "):
            if 60 < len(sentence) < 400:
                texts.setdefault(sentence)
    return list(texts)[:: len(texts) // count][:count]


@dataclass
class Start:
    """Starts workers with a number of threads."""

    threads: int
    environment: dict[str, str]
    refused: dict[str, str]
    """Reasons why something is not measured, by name."""

    def __call__(self, python: str, whose: str, title: str, kinds: Kinds, ending: str = "") -> Iterator[Way]:
        """Starts a worker; yields the ways that it has."""
        abouts = {}
        for how, precision in kinds:
            name = f"{title}, {how if how == precision else f'{how} {precision}'}{ending}"
            if self.environment and how in UNBOUND:
                self.refused[name] = "no setting binds it to AVX2"
            else:
                abouts[name] = {"whose": whose, "runtime": how, "precision": precision}
        if not abouts:
            return
        model = DEFAULT if whose == "ours" else str(folder_of(DEFAULT))
        path = os.environ.get("PYTHONPATH", "") if whose == "ours" else ""
        further = {"OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": path}
        process = subprocess.Popen(
            [python, str(WORKER), json.dumps({"model": model, "threads": self.threads, "ways": abouts})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self.environment, **further},
        )
        assert process.stdout is not None
        said = json.loads(process.stdout.readline() or "{}")
        for name in abouts:
            if "versions" in said.get(name, {}):
                yield Way(name, process, name, said[name]["versions"])
            else:
                self.refused[name] = said.get(name, {}).get("refused", f"the process has ended, {process.poll()}")
                print(f"{name}: {self.refused[name]}", flush=True)


def ways(start: Start, pythons: list[str]) -> list[Way]:
    """Everything that can be measured here; sentence-transformers as it comes first."""
    known = (("torch", "float32"), ("torch", "bfloat16"))
    found = list(start(sys.executable, "theirs", "sentence-transformers", known, f", {BEST}"))
    found.insert(0, replace(found[0], name=BASE, many=[], single=[]))
    for python in pythons:
        for kinds in ELSEWHERE:
            found += start(python, "theirs", f"sentence-transformers {_version(python)}", kinds, f", {BEST}")
    for kinds in OURS:
        some = tuple((how, precision) for how, precision in kinds if how == "auto" or runtime.is_installed(how))
        found += start(sys.executable, "ours", "twofold", some)
    return found


def _version(python: str) -> str:
    code = "from importlib.metadata import version; print(version('sentence-transformers'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def measure(found: list[Way], texts: list[str], count: int) -> None:
    """Times all ways in turn, on other sentences in each round, each round beginning with another way."""
    for way in found:
        if way.name.endswith(BEST):
            way.choose_batch(texts[:TRIED])
        way.seconds(texts[:64])
    for number in range(ROUNDS):
        some = texts[TRIED + number * count : TRIED + (number + 1) * count]
        for way in found[number % len(found) :] + found[: number % len(found)]:
            way.many.append(len(some) / way.seconds(some))
            way.single.append(1000 * way.seconds(some[:SINGLE], alone=True) / SINGLE)


def compared(found: list[Way], texts: list[str]) -> dict[str, dict[str, Any]]:
    """Differences of all vectors from those of sentence-transformers as it comes."""
    vectors: dict[str, NDArray[np.float32]] = {}
    with TemporaryDirectory() as folder:
        for way in found:
            file = str(Path(folder, "vectors.npy"))
            way.seconds(texts, save=file)
            vectors[way.name] = np.load(file)
    expected, result = vectors[BASE], {}
    for name, values in vectors.items():
        cosine = (values * expected).sum(1) / np.linalg.norm(values, axis=1) / np.linalg.norm(expected, axis=1)
        result[name] = {
            "largest_difference": float(np.abs(values - expected).max()),
            "least_cosine": round(float(cosine.min()), 6),
            "mean_cosine": round(float(cosine.mean()), 6),
        }
    return result


def results(found: list[Way]) -> dict[str, dict[str, Any]]:
    """Medians of the rounds, and ratios to sentence-transformers as it comes and to its fastest."""
    many = {way.name: statistics.median(way.many) for way in found}
    single = {way.name: statistics.median(way.single) for way in found}
    theirs = [name for name in many if name.startswith("sentence-transformers")]
    fastest, quickest = max(many[name] for name in theirs), min(single[name] for name in theirs)
    return {
        way.name: {
            **({} if way.name.startswith("twofold") else {"batch": way.batch}),
            "sentences_per_cpu_second": round(many[way.name], 1),
            "times_their_default": round(many[way.name] / many[BASE], 2),
            "times_their_fastest": round(many[way.name] / fastest, 2),
            "one_sentence_cpu_milliseconds": round(single[way.name], 2),
            "one_sentence_share_of_their_default": round(single[way.name] / single[BASE], 3),
            "one_sentence_share_of_their_fastest": round(single[way.name] / quickest, 3),
        }
        for way in found
    }


def recall(precision: str) -> float:
    """R@1 on the dev part of ubuntu_irc."""
    model = twofold.load(DEFAULT, precision=precision)
    report = twofold.evaluate(model, str(need("ubuntu_irc", "dev.jsonl.gz")), timed=0)
    return round(report.metrics["r@1"], 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="sentences of one round")
    parser.add_argument("--theirs", action="append", default=[], help="Python of an environment with their backends")
    parser.add_argument("--avx2", action="store_true", help="emulate a processor with AVX2 alone")
    options = parser.parse_args()
    print("processor:", *processor_flags(), flush=True)
    environment, refused = (AVX2 if options.avx2 else {}), dict[str, str]()
    texts = sentences(TRIED + ROUNDS * options.sentences)
    rows: dict[str, dict[str, Any]] = {}
    for threads in (1, 2):
        found = ways(Start(threads, environment, refused), options.theirs)
        if threads == 1:
            rows = compared(found, texts[: 2 * TRIED])
        measure(found, texts, options.sentences)
        for way in found:
            rows[way.name]["versions"] = way.versions
        for name, measured in results(found).items():
            rows[name][f"{threads} threads"] = measured
            print(f"{name:66} {threads} threads {measured}", flush=True)
        for way in found:
            way.end()
    about = {"processor": processor_flags(), **({"emulated": AVX2} if options.avx2 else {})}
    measured = {**about, "sentences_per_round": options.sentences, "rounds": ROUNDS, "rows": rows, "refused": refused}
    if not options.avx2:
        measured["ubuntu_irc_r@1"] = {precision: recall(precision) for precision in ("float32", "bfloat16")}
        print("ubuntu_irc R@1:", measured["ubuntu_irc_r@1"], flush=True)
    save("encoding_avx2" if options.avx2 else "encoding", measured)


if __name__ == "__main__":
    main()
