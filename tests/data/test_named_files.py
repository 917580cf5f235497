"""Images are found in folders, in archives and by tables; no name leads outside, and nothing is ever unpacked."""

from __future__ import annotations

import gzip
import json
import os
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.images import encoded, noise, write_files, write_zip
from twofold.data import named_files
from twofold.data.files import Row
from twofold.data.images import ImageFile, as_image, read_images
from twofold.data.named_files import FileError, open_files
from twofold.errors import TwofoldError
from twofold.inputs.image import Config as ImageConfig
from twofold.outputs.mask import Config as MaskConfig
from twofold.outputs.mask import MaskOutput
from twofold.types import HiddenSpec

FILES = {
    f"{part}/{kind}/{name}.png": encoded(noise(2, 3, number))
    for part in ("train", "dev")
    for kind in ("images", "masks")
    for number, name in enumerate("ab")
}
IMAGE = encoded(noise(2, 3, 0))


def names(rows: list[Row]) -> list[dict[str, str]]:
    return [{key: value.name for key, value in row.values.items()} for row in rows]


def read(where: str | Path, images: str | Path | None = None) -> list[Row]:
    return list(read_images(str(where), str(images) if images else None, "image"))


def masks() -> MaskOutput:
    return MaskConfig(classes=("ground",)).build("main", ImageConfig().build(None), None, HiddenSpec())


@pytest.fixture(params=["folder", "archive"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Files in a folder, and the same files in an archive."""
    if request.param == "folder":
        return write_files(tmp_path / "images", FILES)
    return write_zip(tmp_path / "images.zip", FILES)


def test_a_folder_or_a_folder_in_an_archive_gives_images_with_their_masks(place: Path) -> None:
    rows = read(place / "train")
    assert names(rows) == [{"image": f"images/{name}.png", "mask": f"masks/{name}.png"} for name in "ab"]
    assert [row.place for row in rows] == [f"{place}/train/images/{name}.png" for name in "ab"]
    assert (rows[1].values["mask"].numbers() == noise(2, 3, 1)).all()


def test_without_masks_all_images_of_a_folder_are_read(place: Path) -> None:
    (place / "notes.txt").write_text("no image") if place.is_dir() else None
    assert [one["image"] for one in names(read(place))] == sorted(FILES)


def test_a_single_image_may_lie_in_an_archive(place: Path) -> None:
    image = as_image(place / "train/images/b.png", "input")
    assert (np.asarray(image.image())[..., 0] == noise(2, 3, 1)).all()
    with pytest.raises(FileError, match=r"none\.png"):
        as_image(place / "train/images/none.png", "input").image()


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz"])
def test_a_table_names_images_in_its_own_folder_or_elsewhere(place: Path, tmp_path: Path, ending: str) -> None:
    rows = [{"image": f"images/{name}.png", "mask": f"masks/{name}.png", "said": f"a {name}"} for name in "ba"]
    lines = [json.dumps(row) for row in rows]
    if ".tsv" in ending:
        lines = ["image\tmask\tsaid", *("\t".join(row.values()) for row in rows)]
    content = ("\n".join(lines) + "\n").encode()
    tables = [tmp_path / f"rows{ending}"] + ([place / "train" / f"rows{ending}"] if place.is_dir() else [])
    for table in tables:
        table.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
        images = read(table, place / "train" if table.parent == tmp_path else None)
        assert [row.values["said"] for row in images] == ["a b", "a a"]
        assert [row.values["image"].name for row in images] == ["images/b.png", "images/a.png"]
        assert (masks().file(images[0]).numbers() == noise(2, 3, 1)).all()


def test_a_row_that_names_no_image_lacks_it(tmp_path: Path) -> None:
    table = tmp_path / "rows.jsonl"
    table.write_text('{"image": "", "mask": "m.png"}\n{"image": ["a", "b"], "mask": 7}\n{"said": "x"}\n')
    rows = read(table)
    assert [set(row.values) for row in rows] == [{"mask"}, {"mask"}, {"said"}]
    for row in rows[1:]:
        with pytest.raises(FileError, match=rf"^{row.place}: no mask 'mask' for this image; "):
            masks().file(row)


def test_a_place_without_images_is_named(tmp_path: Path) -> None:
    write_files(tmp_path / "images", {"a.png": IMAGE, "masks/a.png": IMAGE})
    write_zip(tmp_path / "images.zip", {"a.txt": b"x"})
    for where, said in {
        "images.zip": r"holds no images \(\.png, ",
        "images.zip/none": r"holds no images \(\.png, ",
        "none/rows.tsv": "no such folder or zip archive",
        "none.tsv": "cannot be read",
        "none.zip/train": "no such folder or zip archive",
    }.items():
        with pytest.raises(TwofoldError, match=said):
            read(tmp_path / where)
    for row in read(tmp_path / "images"):
        with pytest.raises(FileError, match=r"a\.png: no mask 'mask' for this image; .* images/ .* masks/"):
            masks().file(row)


@pytest.mark.parametrize(
    "name", ["../evil.png", "a/../../evil.png", "/etc/evil.png", "a\\..\\..\\evil.png", "C:\\evil.png"]
)
def test_a_name_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {"evil.png": IMAGE, "images/a/x.png": IMAGE})
    archive = write_zip(tmp_path / "images.zip", {name: IMAGE, "a.png": IMAGE})
    before = sorted(tmp_path.rglob("*"))
    rows = read(archive)
    assert len(rows) == 2  # it is there, so that it can be named
    for files in (open_files(tmp_path / "images"), open_files(archive)):
        with pytest.raises(FileError) as caught:
            ImageFile(files, name).image()
        assert repr(name) in str(caught.value)
        assert str(caught.value).startswith(str(tmp_path / "images"))
        assert str(caught.value).endswith(" leads outside")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    for files in (open_files(tmp_path), open_files(write_zip(tmp_path / "p.zip", {"a.png": IMAGE}))):
        with pytest.raises(FileError, match="leads outside"):
            ImageFile(files, "a.png\0.jpg").image()


def test_a_link_in_a_folder_is_read_like_the_file_it_leads_to(tmp_path: Path) -> None:
    # Whoever may put a link into the folder could put the image there; a name in a table is another's word.
    write_files(tmp_path, {"outside/a.png": IMAGE, "images/b.png": IMAGE})
    (tmp_path / "images/link.png").symlink_to(tmp_path / "outside/a.png")
    (tmp_path / "images/text.png").symlink_to("/etc/passwd")
    (tmp_path / "images/nowhere.png").symlink_to(tmp_path / "none.png")
    (tmp_path / "images/circle.png").symlink_to(tmp_path / "images/circle.png")
    files = open_files(tmp_path / "images")
    assert files.names() == ["b.png", "link.png", "text.png"]
    assert ImageFile(files, "link.png").size() == (2, 3)
    for name, said in {
        "text.png": "not a PNG",
        "nowhere.png": "cannot be read",
        "circle.png": "cannot be read",
    }.items():
        with pytest.raises(FileError, match=f"{name}: {said}"):
            ImageFile(files, name).image()


def test_a_linked_folder_is_looked_into_once(tmp_path: Path) -> None:
    write_files(tmp_path, {"outside/a.png": IMAGE, "images/b.png": IMAGE})
    (tmp_path / "images/images").symlink_to(tmp_path / "outside")
    (tmp_path / "outside/circle").symlink_to(tmp_path / "images")
    assert open_files(tmp_path / "images").names() == ["b.png", "images/a.png"]


def test_a_link_in_an_archive_is_a_text_and_no_image(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("a.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr(link, str(write_files(tmp_path, {"b.png": IMAGE}) / "b.png"))
    with pytest.raises(FileError, match=r"p.zip/a.png: not a PNG"):
        ImageFile(open_files(tmp_path / "p.zip"), "a.png").image()


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    files = open_files(tmp_path)
    assert files.names() == []
    for name in ("folder.jpg", "pipe.jpg"):
        with pytest.raises(FileError, match=f"{name}: not a file"):
            files.read(name)


def test_a_file_of_too_many_bytes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "LARGEST_FILE", 5 << 20)
    large = bytes(5 << 20) + b"x"
    folder = write_files(tmp_path, {"large.png": large})
    archive = write_zip(tmp_path / "p.zip", {"large.png": large})
    assert archive.stat().st_size < 1 << 16
    for files in (open_files(folder), open_files(archive)):
        with pytest.raises(FileError, match=r"large\.png: a file of over 5 MiB"):
            files.read("large.png")


def lied(content: bytes) -> bytes:
    """Says of its one entry that it is far smaller than what it inflates to."""
    directory = content.rindex(b"PK\x01\x02")
    return content[: directory + 24] + struct.pack("<I", 10) + content[directory + 28 :]


def encrypted(content: bytes) -> bytes:
    directory = content.rindex(b"PK\x01\x02")
    return content[:6] + b"\x01" + content[7 : directory + 8] + b"\x01" + content[directory + 9 :]


def changed(content: bytes) -> bytes:
    place = content.index(b"IDAT")
    return content[:place] + b"iDAT" + content[place + 4 :]


@pytest.mark.parametrize(
    ("damage", "packing", "said"),
    [
        (lied, zipfile.ZIP_DEFLATED, "Bad CRC-32"),
        (changed, zipfile.ZIP_STORED, "Bad CRC-32"),
        (encrypted, zipfile.ZIP_DEFLATED, "encrypted"),
    ],
)
def test_an_entry_that_cannot_be_unpacked_is_named(
    tmp_path: Path, damage: Callable[[bytes], bytes], packing: int, said: str
) -> None:
    path = write_zip(tmp_path / "p.zip", {"in/a.png": IMAGE}, packing)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=rf"p.zip/in/a.png: cannot be unpacked \(.*{said}"):
        ImageFile(open_files(path / "in"), "a.png").image()


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04" + bytes(100), IMAGE])
def test_an_archive_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.zip"
    path.write_bytes(content)
    for where in (path, path / "train"):
        with pytest.raises(TwofoldError, match=r"p\.zip: not a zip archive that can be read"):
            read(where)


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damage_anywhere_in_an_archive_is_one_line(tmp_path: Path, packing: int) -> None:
    draw = np.random.default_rng(packing)
    path = tmp_path / "p.zip"
    whole = write_zip(path, {"images/é.png": IMAGE, "b.png": IMAGE}, packing).read_bytes()
    for number in range(200):
        content = bytearray(whole)
        for place in draw.integers(0, len(content), 2):
            content[place] = draw.integers(256)
        path = tmp_path / f"{number}.zip"
        path.write_bytes(content)
        try:
            for row in read(path):
                row.values["image"].image()
        except TwofoldError as error:
            assert str(error).startswith(str(path))  # noqa: PT017
        path.unlink()


def test_images_of_one_archive_share_its_handle(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "p.zip", {f"{number}.png": IMAGE for number in range(60)})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    images = [as_image(path / f"{number}.png", "x") for number in range(60)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, limits[1]))
    try:
        assert {one.size() for one in images} == {(2, 3)}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_archive_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    for number in (1, 2):
        path = write_zip(tmp_path / "p.zip", {"a.png": encoded(noise(number, 3))})
        os.utime(path, ns=(number, number))
        assert as_image(path / "a.png", "x").size() == (number, 3)


def test_the_fingerprint_tells_images_apart_and_minds_no_other_files(tmp_path: Path) -> None:
    folder = write_files(tmp_path, {"a.png": IMAGE, "b.png": IMAGE})
    table = folder / "rows.tsv"
    table.write_text("image\ta\na.png\tx\nnone.png\ty\n../c.png\tz\n")

    def fingerprint_now() -> str:
        return ImageConfig().content(str(table))

    first = fingerprint_now()
    (folder / "log.jsonl").write_text("{}")
    os.utime(folder / "b.png", ns=(1, 1))
    assert fingerprint_now() == first
    os.utime(folder / "a.png", ns=(1, 1))
    second = fingerprint_now()
    write_files(folder, {"none.png": IMAGE})
    third = fingerprint_now()
    table.write_text(table.read_text().replace("\tx", "\tw"))
    assert len({first, second, third, fingerprint_now()}) == 4


def test_the_fingerprint_minds_the_masks_that_a_table_names(tmp_path: Path) -> None:
    folder = write_files(tmp_path, {"a.png": IMAGE, "m/a.png": IMAGE})
    table = folder / "rows.tsv"
    table.write_text("image\tmask\na.png\tm/a.png\n")
    config = ImageConfig()
    content, stamp = config.content(str(table)), config.files(str(table), "train")["images of train"].stamp
    write_files(folder, {"m/a.png": encoded(noise(2, 3, 5))})
    assert config.content(str(table)) != content
    assert config.files(str(table), "train")["images of train"].stamp != stamp


def test_a_name_without_ending_is_that_of_an_image_and_of_one_only(tmp_path: Path) -> None:
    files = {"dog.png": encoded(noise(3, 3)), "dog.txt": b"a dog", "rows.tsv": b"image\ndog\n"}
    write_files(tmp_path, files)
    assert [row.values["image"].name for row in read(tmp_path / "rows.tsv")] == ["dog.png"]
    write_files(tmp_path, {"dog.jpg": encoded(noise(3, 3), "jpeg")})
    with pytest.raises(TwofoldError, match=r"dog\.\w+: beside dog\.\w+; a table must name them with endings"):
        read(tmp_path / "rows.tsv")
