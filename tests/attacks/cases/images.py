"""Images, masks and archives of them that are broken, hostile, or not what their names say."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from tests.attacks.inputs import Case, Make, all_of, fifo, folder, link, nothing, put
from tests.images import encoded, promising, squares, squares_files, write_files, write_zip

OUT = ("--out", "HERE/out")
PIXELS, MASK = squares(1)
PNG, JPEG = encoded(PIXELS), encoded(PIXELS, "jpeg")
LINK = 0o120777 << 16
"""The attributes by which an archive says that an entry is a link."""


def animated() -> bytes:
    """A GIF of three images."""
    content = io.BytesIO()
    frames = [Image.fromarray(squares(seed)[0]) for seed in range(3)]
    frames[0].save(content, "gif", save_all=True, append_images=frames[1:])
    return content.getvalue()


def text_bomb() -> bytes:
    """A PNG with a note of 100 MB that is packed into few bytes."""
    data = b"note\0\0" + zlib.compress(bytes(100_000_000), 9)
    chunk = struct.pack(">I", len(data)) + b"zTXt" + data + struct.pack(">I", zlib.crc32(b"zTXt" + data))
    return PNG[:33] + chunk + PNG[33:]


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "text": b"no image at all\n",
    "a script": b"#!/bin/sh\nrm -rf /\n",
    "SVG that names a file": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/etc/passwd"/></svg>',
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
    "a head alone": PNG[:33],
    "half a PNG": PNG[: len(PNG) // 2],
    "half a JPEG": JPEG[: len(JPEG) // 2],
    "a wrong checksum": PNG[:40] + bytes([PNG[40] ^ 255]) + PNG[41:],
    "no width": promising(0, 5),
    "a million by a million": promising(10**6, 10**6),
    "four billion wide": promising(2**31 - 1, 1),
    "animated GIF": animated(),
    "BMP": encoded(PIXELS, "bmp"),
    "TIFF": encoded(PIXELS, "tiff"),
    "a note of 100 MB": text_bomb(),
    "zeros": bytes(1000),
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "an archive": b"PK\x05\x06" + bytes(18),
}
PREDICTED = [
    Case(f"predict, image, {name}", put("a.png", content), ("predict", "STAGE/paint", "HERE/a.png"), "HERE/a.png")
    for name, content in BROKEN.items()
]
PLACES: dict[str, Make] = {
    "not there": nothing,
    "a folder": folder("a.png"),
    "a pipe": fifo("a.png"),
    "without an end": link("a.png", "/dev/zero"),
    "a link to itself": link("a.png", "a.png"),
}
PREDICTED += [
    Case(f"predict, image, {name}", make, ("predict", "STAGE/caption", "HERE/a.png"), "HERE/a.png")
    for name, make in PLACES.items()
]
MASKS: dict[str, bytes] = {
    "text": b"none",
    "of another size": encoded(MASK[:-1]),
    "in colors": encoded(PIXELS),
    "of unknown classes": encoded(MASK + 100),
    "of 16 bits": encoded(Image.fromarray(MASK.astype(np.uint16) * 300)),
    "a JPEG": encoded(MASK, "jpeg"),
    "half of one": encoded(MASK)[:40],
    "a million by a million": promising(10**6, 10**6),
}


def files(name: str, content: bytes) -> Make:
    return lambda here: write_files(here / "p", {**squares_files(3), name: content})


TRAINED = [
    Case(
        f"train, mask {name}",
        files("masks/001.png", content),
        ("train", "STAGE/paint.yaml", "data.train=HERE/p", *OUT),
        "HERE/p/masks/001.png",
        leaves=("out",),
    )
    for name, content in MASKS.items()
]
TRAINED += [
    Case(
        f"train, image, {name}",
        files("images/001.png", BROKEN[name]),
        ("train", "STAGE/paint.yaml", "data.train=HERE/p", *OUT),
        "HERE/p/images/001.png",
        leaves=("out",),
    )
    for name in ("empty", "half a PNG", "a million by a million", "a note of 100 MB", "animated GIF")
]


def archive(entries: dict[str, bytes], attributes: int = 0) -> Make:
    """A zip of good images, and of these entries."""

    def make(here: Path) -> None:
        write_zip(here / "p.zip", squares_files(3))
        with zipfile.ZipFile(here / "p.zip", "a", zipfile.ZIP_DEFLATED) as file:
            for name, content in entries.items():
                info = zipfile.ZipInfo(name)
                info.external_attr, info.compress_type = attributes, zipfile.ZIP_DEFLATED
                file.writestr(info, content)

    return make


def cut_archive(here: Path) -> None:
    whole = write_zip(here / "whole.zip", squares_files(3)).read_bytes()
    (here / "whole.zip").unlink()
    (here / "p.zip").write_bytes(whole[: len(whole) // 2])


def lying_archive(here: Path) -> None:
    """A zip whose directory says that an image has four billion bytes."""
    whole = bytearray(write_zip(here / "p.zip", squares_files(3)).read_bytes())
    at = whole.index(b"PK\x01\x02")
    whole[at + 24 : at + 28] = b"\xff\xff\xff\xfe"
    (here / "p.zip").write_bytes(bytes(whole))


ARCHIVES: dict[str, Make] = {
    "that is none": put("p.zip", b"no archive"),
    "that is empty": put("p.zip", b"PK\x05\x06" + bytes(18)),
    "cut in half": cut_archive,
    "that lies about a size": lying_archive,
    "with a name that leads up": archive({"images/../../x.png": PNG}),
    "with an absolute name": archive({"images//etc/x.png": PNG}),
    "with a name of Windows": archive({"images/..\\x.png": PNG}),
    "with a link": archive({"images/link.png": b"/etc/passwd"}, LINK),
    "with a bomb": archive({"images/bomb.png": bytes(200_000_000)}),
    "of no image": archive({"images/000.txt": b"x"}),
    "with an image without a mask": archive({"images/900.png": PNG}),
}
ZIPS = [
    Case(
        f"train, archive {name}",
        make,
        ("train", "STAGE/paint.yaml", "data.train=HERE/p.zip", *OUT),
        "HERE/p.zip",
        leaves=("out",),
    )
    for name, make in ARCHIVES.items()
    if name != "of no image"
]
NAMES = ["../stage/squares/images/000.png", "/etc/passwd", "a\\0b.png", "x" * 5000 + ".png", "", ".", "rows.jsonl"]
TABLES = [
    Case(
        f"train, an image called {name[:20]!r}",
        put("p/rows.jsonl", f'{{"image": "{name}", "caption": "a", "other": "b"}}\n'.replace("\\0", "\\u0000")),
        ("train", "STAGE/caption.yaml", "data.train=HERE/p/rows.jsonl", *OUT),
        "HERE/p",
        leaves=("out",),
    )
    for name in NAMES
]
RIGHT = "STAGE/squares/images/000.png"
OPTIONS = [
    Case("predict, a text for an image", nothing, ("predict", "STAGE/paint", "some words"), "some words"),
    Case("predict, an image for a text", nothing, ("predict", "STAGE/text", RIGHT), RIGHT),
    Case("predict, --masks is a file", put("m", "x"), ("predict", "STAGE/paint", RIGHT, "--masks", "HERE/m"), "HERE/m"),
    Case(
        "predict, --masks of a caption",
        nothing,
        ("predict", "STAGE/caption", RIGHT, "--masks", "HERE/m"),
        "--masks",
        leaves=("m",),
    ),
    Case("predict, --plot is a folder", folder("a.png"), ("predict", "STAGE/paint", RIGHT, "--plot", "HERE/a.png"), ""),
    Case("predict, --plot .exe", nothing, ("predict", "STAGE/paint", RIGHT, "--plot", "HERE/a.exe"), "HERE/a.exe"),
    Case("predict, --plot without ending", nothing, ("predict", "STAGE/paint", RIGHT, "--plot", "HERE/a"), "HERE/a"),
    Case("predict, --plot is empty", nothing, ("predict", "STAGE/paint", RIGHT, "--plot", ""), "--plot", 2),
    Case(
        "predict, --plot nowhere", put("x", ""), ("predict", "STAGE/paint", RIGHT, "--plot", "HERE/x/a.png"), "HERE/x"
    ),
    Case(
        "predict, --plot zero byte",
        nothing,
        ("predict", "STAGE/paint", RIGHT, "--plot", "HERE/a\0b.png"),
        "zero byte",
        2,
    ),
    Case("predict, --prefix of a painter", nothing, ("predict", "STAGE/paint", RIGHT, "--prefix", "a"), "prefix"),
    Case("predict, --prefix it cannot take", nothing, ("predict", "STAGE/caption", RIGHT, "--prefix", "a"), "prefix"),
    Case("predict, --conllu of images", nothing, ("predict", "STAGE/paint", RIGHT, "--conllu", "HERE/a"), "--conllu"),
    Case(
        "evaluate, --images nowhere",
        nothing,
        ("evaluate", "STAGE/caption", "STAGE/shapes/rows.tsv", "--images", "HERE/none"),
        "HERE/none",
    ),
    Case(
        "evaluate, --images of texts",
        nothing,
        ("evaluate", "STAGE/text", "STAGE/rows.jsonl", "--images", "x"),
        "--images",
    ),
    Case("evaluate, no images", all_of(folder("p")), ("evaluate", "STAGE/paint", "HERE/p"), "HERE/p"),
]
IMAGES = {
    "images": PREDICTED,
    "images to learn from": TRAINED,
    "archives": ZIPS + TABLES,
    "image options": OPTIONS,
}
