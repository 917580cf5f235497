"""Several processes build the same index as one; one that is killed is an error in one line, and the build goes on."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import decoder, encoder
from tests.index.common import TEXTS, make_shards_small
from tests.rankers import small_ranker
from twofold import api, runtime
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index, encoding
from twofold.index.catalog import Catalog
from twofold.index.shards import SHARD_FOLDER, Shard
from twofold.model import Ranker
from twofold.runtime import workers
from twofold.runtime.frames import Frame, receive, send
from twofold.runtime.workers import Processes, Workers

MANY = [f"{TEXTS[number % len(TEXTS)]} {number}" for number in range(20_000)]
SCRIPT = """
import sys
import twofold

index = twofold.build_index(sys.argv[1], sys.argv[2], sys.argv[3], processes=2)
print(len(index))
"""


@pytest.fixture(autouse=True)
def one_thread_is_enough(one_thread: None) -> None:
    """A process and its workers have a thread each."""


def saved(tokenizer: TextTokenizer, folder: Path, kind: str = "bi", **settings: Any) -> Ranker:
    ranker = small_ranker(tokenizer, encoder("transformer"), decoder(kind, **settings)).eval()
    ranker.save_pretrained(folder)
    return ranker


def stored(folder: Path) -> dict[str, Any]:
    """Everything that an index stores of its candidates, in the order of their keys."""
    with contextlib.closing(Catalog(folder)) as catalog:
        shards = [Shard(folder / SHARD_FOLDER, record) for record in catalog.shards()]
        content: dict[str, Any] = {"ids": list(catalog.ids())}
    for name in shards[0].names:
        content[name] = np.concatenate([shard.take(name, slice(0, len(shard))) for shard in shards])
    return content


def check_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values, err_msg=name)


@pytest.mark.parametrize(("kind", "split"), [("bi", None), ("late", "4:1")])
def test_two_processes_store_the_same_digits_as_one(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, split: str | None
) -> None:
    make_shards_small(monkeypatch)
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 60)
    monkeypatch.setattr(encoding, "PIECE", 25)
    model = saved(tokenizer, tmp_path / "model", kind)
    rows = [{"text": text, "id": f"t{number}"} for number, text in enumerate([*TEXTS[:200], *TEXTS[:30]])]
    Index.build(tmp_path / "one", model, rows, split=split).close()
    encoded: list[Workers] = []
    real = Workers.encode

    def encode(pool: Workers, items: Any) -> Any:
        encoded.append(pool)
        return real(pool, items)

    monkeypatch.setattr(Workers, "encode", encode)
    api.build_index(tmp_path / "two", tmp_path / "model", rows, split=split, processes=2).close()
    assert len(encoded) > 230 / 60
    assert encoded[0]._workers[0]._ready
    check_equal(stored(tmp_path / "two"), stored(tmp_path / "one"))


@pytest.fixture
def pool(tokenizer: TextTokenizer, tmp_path: Path) -> Iterator[Workers]:
    model = saved(tokenizer, tmp_path / "model")
    with Processes(str(tmp_path / "model"), 2).started(model, 1) as started:
        assert isinstance(started, Workers)
        yield started


def test_a_worker_that_is_killed_is_an_error_and_the_build_goes_on(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: Workers
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 100)
    model, texts, commits = Ranker.from_pretrained(tmp_path / "model"), MANY[:3000], []
    [worker] = pool._workers

    @contextlib.contextmanager
    def started(ranker: Ranker, count: int) -> Iterator[Workers]:
        assert count == len(texts)
        yield pool

    def merge_small(*_: Any) -> None:  # after each commit
        commits.append(worker._ready)
        if worker._ready:
            worker.process.kill()
        else:
            time.sleep(0.3)  # it is still starting

    monkeypatch.setattr("twofold.index.shards.ShardFiles.merge_small", merge_small)
    with pytest.raises(TwofoldError, match=r"killed by SIGKILL.*run the same command again.*--processes 1"):
        Index.build(tmp_path / "index", model, texts, start_workers=started)
    assert commits[-1]
    monkeypatch.undo()
    with contextlib.closing(Catalog(tmp_path / "index")) as catalog:
        assert catalog.count() == 100 * len(commits) < len(texts)
    with Index.build(tmp_path / "index", model, texts) as index:
        assert len(index) == len(texts)
        assert [hit.text for hit in index.search(texts[2999], 1)] == [
            hit.text for hit in model.rank(texts[2999], texts, 1)
        ]


def test_what_a_worker_refuses_is_said_here(tokenizer: TextTokenizer, tmp_path: Path, pool: Workers) -> None:
    [worker] = pool._workers
    worker._about = {**worker._about, "model": "another"}
    with pytest.raises(TwofoldError, match="has changed since it was loaded"):
        worker.encode([np.array([1, 2])])
    worker._ready = True
    with pytest.raises(TwofoldError, match=r"a process that encodes texts has ended \(status 1: \w*Error"):
        worker.encode([np.array([10**6])])  # no such token
    pool.close()
    assert worker.process.returncode is not None


def waited_for(what: Any, seconds: float = 300.0) -> Any:
    """The result of a function, once it is true."""
    end = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return result


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def is_running(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks into processes by /proc")
def test_ctrl_c_ends_all_processes_and_a_script_without_a_main_guard_goes_on(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setenv(runtime.VARIABLE, "openvino")
    model = saved(tokenizer, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(MANY), encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    names = [str(tmp_path / name) for name in ("index", "model", "texts.txt")]
    command = ["index", "build", names[0], "--model", names[1], "--texts", names[2], "--processes", "2"]
    build = subprocess.Popen(
        [sys.executable, "-m", "twofold", *command], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    [worker] = waited_for(lambda: children(build.pid))
    waited_for(lambda: any((tmp_path / "index" / SHARD_FOLDER).glob("*.safetensors")))
    loaded = Path(f"/proc/{worker}/maps").read_text()  # a part of the first shard came from there
    os.killpg(build.pid, signal.SIGINT)
    assert ("openvino" in loaded, "torch" in loaded) == (True, False)
    errors = build.communicate()[1]
    assert (build.returncode, errors.splitlines()[-1]) == (1, "stopped by Ctrl-C")
    assert not is_running(worker)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", *names], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == f"{len(MANY)}\n"
    runtime.install(model)
    with api.open_index(tmp_path / "index") as index:
        for number in (0, 5000, len(MANY) - 1):
            [hit] = index.search(MANY[number], 1)
            [score] = model.similarity([MANY[number]], [hit.text])[0]
            assert hit.score == pytest.approx(score, abs=1e-5)
        assert index.info(check=True)["health"] == "good"


def test_few_texts_and_objects_are_encoded_by_one_process(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tokenizer, tmp_path / "model")
    begun: list[int] = []

    def begin(ranker: Ranker, about: Any, count: int) -> io.BytesIO:
        begun.append(count)
        return io.BytesIO()

    monkeypatch.setattr(workers, "Workers", begin)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    monkeypatch.setattr(workers, "_most_in_memory", lambda: 64)

    def processes(count: Any, texts: int, name: str = str(tmp_path / "model")) -> int:
        begun.clear()
        with Processes(name, count).started(model, texts) as started:
            assert (started is None) == (not begun)
        return begun[0] if begun else 1

    assert processes("auto", workers.LEAST_TEXTS - 1) == 1
    assert processes("auto", workers.LEAST_TEXTS) == 3
    assert processes("auto", workers.LEAST_TEXTS, "") == 1
    assert processes(1, 10**9) == 1
    assert processes(2, 1) == 2
    monkeypatch.setattr(workers, "_most_in_memory", lambda: 2)
    assert processes("auto", workers.LEAST_TEXTS) == 2
    with pytest.raises(TwofoldError, match="by name, and it was given as an object"):
        processes(2, 1, "")
    for wrong in (0, -1, 1.5, True, "two"):
        with pytest.raises(TwofoldError, match=r"processes: .* is neither a whole number from 1 on nor auto"):
            Processes("model", wrong)  # type: ignore[arg-type]


def test_messages_arrive_whole_or_not_at_all() -> None:
    arrays: list[NDArray[Any]] = [
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.empty((0, 4), np.float32),
        np.array([], np.int32),
    ]
    stream = io.BytesIO()
    for number in (1, 2):
        send(stream, Frame({"number": number, "text": "삼백 🙂"}, arrays))
    content = stream.getvalue()
    stream.seek(0)
    for number in (1, 2):
        frame = receive(stream)
        assert frame is not None
        assert frame.about == {"number": number, "text": "삼백 🙂"}
        for ours, theirs in zip(frame.arrays, arrays, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_array_equal(ours, theirs)
    assert receive(stream) is None
    for length in (3, 20, len(content) // 2 - 1):
        with pytest.raises(EOFError):
            receive(io.BytesIO(content[:length]))
