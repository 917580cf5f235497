"""A file that is not UTF-8 is named with its likely encoding and the command that converts it."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from twofold.data.files import read_rows
from twofold.errors import TwofoldError
from twofold.recipe.file import read_yaml

KOREAN = (
    "text\tlabel\n창가에 둔 화분이 밤사이 조금 더 자랐다.\t좋음\n버스를 놓쳐서 20분을 걸었더니 땀이 났어요!\t나쁨\n"
)
JAPANESE = "text\tlabel\n窓辺の鉢植えは夜のうちに少し伸びました。\tよい\nバスに乗り遅れて歩きました。\tわるい\n"
CHINESE = "text\tlabel\n窗台上的花一夜之间又长高了一点。\t好\n我没赶上公共汽车,走了二十分钟。\t坏\n"
FRENCH = "text\tlabel\nLe café était fermé à midi.\tdéçu\nLa forêt brûle près de l'hôtel.\tété\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (KOREAN, "cp949", "CP949"),
        (KOREAN, "euc_kr", "CP949"),
        (KOREAN, "utf-16", "UTF-16"),
        (JAPANESE, "shift_jis", "SHIFT_JIS"),
        (CHINESE, "gb18030", "GB18030"),
        (FRENCH, "cp1252", "CP1252"),
        (FRENCH, "latin-1", "CP1252"),
        (FRENCH, "utf-16", "UTF-16"),
        ("text\tlabel\nplain words\tyes\n", "utf-16-le", "UTF-16LE"),
        ("text\tlabel\nplain words\tyes\n", "utf-16-be", "UTF-16BE"),
    ],
)
def test_another_encoding_is_named_with_a_command_that_works(
    tmp_path: Path, text: str, codec: str, name: str, packed: bool
) -> None:
    path = tmp_path / ("my rows.tsv" + ".gz" * packed)
    path.write_bytes(gzip.compress(text.encode(codec)) if packed else text.encode(codec))
    with pytest.raises(TwofoldError) as said:
        list(read_rows(str(path)))
    line = str(said.value)
    assert line.startswith(f"{path}:")
    assert f"it looks like {name}: convert it with `" in line
    command = line.split("`")[1]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    rows = [row.values for row in read_rows(str(tmp_path / f"utf8-{path.name}"))]
    assert [list(row.values()) for row in rows] == [line.split("\t") for line in text.splitlines()[1:]]


def test_a_damaged_byte_in_utf_8_is_not_taken_for_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_bytes(KOREAN.encode() + b"\xff\tlast\n")
    with pytest.raises(TwofoldError, match=r":4: not valid UTF-8 \(invalid start byte at byte 0\)$"):
        list(read_rows(str(path)))


def test_a_recipe_in_another_encoding_is_named_with_it(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes("data: {train: 대화.tsv, source: 질문, target: 대답}\n".encode("cp949"))
    with pytest.raises(
        TwofoldError, match=r"it looks like CP949: convert it with `iconv -f CP949 -t UTF-8 recipe.yaml"
    ):
        read_yaml(path)
