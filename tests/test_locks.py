"""A folder that one process changes is refused to another, which is told who has it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from twofold.errors import TwofoldError
from twofold.storage.locks import held

HOLDS = """
import sys, time
from pathlib import Path
from twofold.storage.locks import held
with held(Path(sys.argv[1]), "training"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_names_the_process_that_holds_it_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "run" / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        with pytest.raises(TwofoldError) as refused, held(path, "training"):
            pass
        process.kill()
    assert str(refused.value).startswith(f"{path.parent}: another process ({process.pid} on ")
    assert str(refused.value).endswith(" is training here; wait for it or choose another folder")
    assert "since " in str(refused.value)
    with held(path, "training"):  # a killed process leaves no lock
        pass
    assert [one.name for one in path.parent.iterdir()] in ([".lock"], [])


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    begun = time.monotonic()
    refused = pytest.raises(TwofoldError, match="has been building for 0 s")
    with held(path, "building"), refused, held(path, "building", wait=0.2):
        pass
    assert time.monotonic() - begun >= 0.2


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    places = {file: "a file, not a folder", file / "inside": "Not a directory", Path("/proc/none"): "cannot be written"}
    for folder, said in places.items():
        with pytest.raises(TwofoldError) as refused, held(folder / ".lock", "training"):
            pass
        assert str(refused.value).startswith(f"{folder}: ")
        assert said in str(refused.value)
