"""Images on the command line: train, evaluate and predict, and one line for whatever cannot be used."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_bad_input import tree
from tests.commands import answer, refusal, run
from tests.conftest import decoder, encoder, small_model
from tests.images import (
    CLASSES,
    bad_files,
    captioning,
    encoded,
    promising,
    segmenting,
    shape,
    squares,
    squares_files,
    write_files,
    write_shapes,
    write_zip,
)
from tests.rankers import small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.recipe.file import to_yaml


def write_recipe(path: Path, recipe: dict[str, Any]) -> Path:
    path.write_text(to_yaml(recipe), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Images in an archive and in folders, and trainings of three steps: `paint`, `say`, `go_on` and `rnn`."""
    folder = tmp_path_factory.mktemp("trained")
    write_zip(folder / "squares.zip", {f"train/{name}": content for name, content in squares_files(6).items()})
    write_files(folder / "squares", squares_files(4, first=50))
    write_shapes(folder / "shapes", 6)
    table = folder / "shapes/rows.tsv"
    recipes = {
        "paint": segmenting(folder / "squares.zip/train"),
        "say": captioning(table),
        "go_on": captioning(table, "vit", "transformer", encoder={"prefix": True}, output={"prefix": 0.5}),
        "rnn": captioning(table, "convnet", "rnn"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        for name, recipe in recipes.items():
            result = run("train", write_recipe(folder / f"{name}.yaml", recipe), "--out", folder / name)
            assert result.exit_code == 0, result.stderr
        yield folder


def test_a_painter_is_judged_class_by_class(trained: Path) -> None:
    report = answer("evaluate", trained / "paint", trained / "squares")
    assert report["examples"] == 4
    assert report["metrics"].keys() == {"loss", "pixel_accuracy", "miou", "dice"}
    assert [line["class"] for line in report["classes"]] == CLASSES
    shown = run("evaluate", trained / "paint", trained / "squares.zip/train").stdout
    assert shown.startswith("6 examples\n")
    assert all(name in shown for name in (*CLASSES, "miou", "pixel_accuracy"))


def test_a_class_that_never_occurs_has_no_score(trained: Path, tmp_path: Path) -> None:
    void = encoded(np.zeros((8, 8), np.uint8))
    write_files(tmp_path / "p", {"images/a.png": encoded(np.zeros((8, 8, 3), np.uint8)), "masks/a.png": void})
    result = run("evaluate", trained / "paint", tmp_path / "p", "--json")
    assert "NaN" not in result.stdout
    scores = {line["class"]: line["iou"] for line in json.loads(result.stdout)["classes"]}
    assert all(score is None or 0 <= score <= 1 for score in scores.values())
    assert run("evaluate", trained / "paint", tmp_path / "p").exit_code == 0


def test_a_painter_shows_the_shares_of_each_class(trained: Path) -> None:
    paths = [str(trained / f"squares/images/05{number}.png") for number in range(3)]
    result = answer("predict", trained / "paint", *paths)
    assert [one["input"] for one in result["predictions"]] == paths
    for prediction in result["predictions"]:
        assert prediction.keys() == {"input", "output", "score"}
        assert (prediction["output"]["height"], prediction["output"]["width"]) == (16, 16)
        assert sum(prediction["output"]["shares"].values()) == pytest.approx(1)
        assert set(prediction["output"]["shares"]) <= set(CLASSES)
    assert paths[0] in run("predict", trained / "paint", paths[0]).stdout


def test_masks_and_plots_are_written_where_they_are_wanted(trained: Path, tmp_path: Path) -> None:
    paths = [trained / f"squares/images/05{number}.png" for number in range(2)]
    before = tree(trained)
    masks, plot = tmp_path / "new/masks", tmp_path / "plots/a.png"
    result = run("predict", trained / "paint", *paths, "--masks", masks, "--plot", plot)
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["050.png", "051.png", "a.png"]
    with Image.open(masks / "051.png") as painted, Image.open(plot) as drawn:
        assert (painted.mode, painted.size) == ("L", (16, 16))
        assert np.asarray(painted).max() < len(CLASSES)
        assert drawn.width > 100
    assert tree(trained) == before


def test_a_mask_never_takes_the_place_of_an_image(trained: Path, tmp_path: Path) -> None:
    write_files(tmp_path, {"a.png": encoded(squares(1)[0]), "b/a.png": encoded(squares(2)[0])})
    before = tree(tmp_path)
    said = refusal("predict", trained / "paint", tmp_path / "a.png", "--masks", tmp_path)
    assert said == f"--masks: {tmp_path / 'a.png'} is one of the images; give another folder"
    assert tree(tmp_path) == before
    said = refusal("predict", trained / "paint", tmp_path / "a.png", tmp_path / "b/a.png", "--masks", tmp_path / "c")
    assert said == "--masks: two images are called a; give them apart"


def test_captions_are_judged_by_all_that_people_wrote(trained: Path) -> None:
    report = answer("evaluate", trained / "say", trained / "shapes/rows.tsv", "--beam", "2")
    assert report["examples"] == 6
    names = {"loss", "perplexity", "bleu1", "bleu2", "bleu3", "bleu4", "cider", "rouge_l"}
    assert report["metrics"].keys() == names
    assert all(math.isfinite(value) for value in report["metrics"].values())


def test_a_table_may_name_images_that_lie_elsewhere(trained: Path, tmp_path: Path) -> None:
    table = shutil.copy(trained / "shapes/rows.tsv", tmp_path / "rows.tsv")
    here = answer("evaluate", trained / "say", trained / "shapes/rows.tsv")
    assert answer("evaluate", trained / "say", table, "--images", trained / "shapes") == here
    images = {f"in/{number:03}.png": encoded(shape(number)[0]) for number in range(6)}
    archive = write_zip(tmp_path / "p.zip", images)
    assert answer("evaluate", trained / "say", table, "--images", archive / "in") == here
    assert "000.png: cannot be read" in refusal("evaluate", trained / "say", table)
    assert refusal("evaluate", trained / "say", table, "--images", tmp_path / "no") == (
        f"{tmp_path / 'no'}: no such folder or zip archive"
    )


@pytest.mark.parametrize("ending", [".txt", ".tsv", ".jsonl"])
def test_a_file_may_name_the_images(trained: Path, tmp_path: Path, ending: str) -> None:
    names = [f"00{number}.png" for number in range(3)]
    paths = [str(trained / "shapes" / name) for name in names]
    content = {
        ".txt": "\n".join(paths),
        ".tsv": "\n".join(["image", *names]),
        ".jsonl": "\n".join(json.dumps({"image": name.removesuffix(".png")}) for name in names),
    }[ending]
    (tmp_path / f"list{ending}").write_text(content + "\n")
    elsewhere: list[str | Path] = [] if ending == ".txt" else ["--images", trained / "shapes"]
    result = answer("predict", trained / "say", paths[0], "--file", tmp_path / f"list{ending}", *elsewhere)
    assert [one["input"] for one in result["predictions"]] == [paths[0], *paths]
    assert result["predictions"][0]["output"] == result["predictions"][1]["output"]


def test_a_table_names_images_of_its_own_folder_or_of_another(trained: Path, tmp_path: Path) -> None:
    first, *_ = (trained / "shapes" / "rows.tsv").read_text().splitlines()[1].split("\t")
    result = answer("predict", trained / "say", "--file", trained / "shapes" / "rows.tsv")
    assert result["predictions"][0]["input"] == str(trained / "shapes" / first)
    (tmp_path / "list.csv").write_text(f"image\n{first}\n")
    again = answer("predict", trained / "say", "--file", tmp_path / "list.csv", "--images", trained / "shapes")
    one_image, same = again["predictions"][0], result["predictions"][0]
    assert (one_image["input"], one_image["output"]) == (same["input"], same["output"])
    assert one_image["score"] == pytest.approx(same["score"], abs=1e-4)  # read alone and among others
    (tmp_path / "list.csv").write_text("file,caption\na.png,a dog\n")
    said = refusal("predict", trained / "say", "--file", tmp_path / "list.csv")
    assert said.endswith("list.csv:2: 'image' names no image; this row has file, caption")


@pytest.mark.parametrize("name", ["../shapes/000.png", "/etc/passwd"])
def test_no_name_in_a_table_leads_outside_its_folder(trained: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "list.tsv").write_text(f"image\n{name}\n")
    asked: list[str | Path] = [tmp_path / "list.tsv", "--images", trained / "shapes"]
    for said in (
        refusal("predict", trained / "say", "--file", *asked),
        refusal("evaluate", trained / "say", *asked),
    ):
        assert f"the name '{name}' leads outside" in said


def test_a_folder_or_an_archive_may_be_predicted_whole(trained: Path) -> None:
    result = answer("predict", trained / "paint", "--file", trained / "squares.zip/train/images")
    assert len(result["predictions"]) == 6
    shown = run("predict", trained / "say", "--file", trained / "shapes").stdout.splitlines()
    assert all(str(trained / "shapes" / f"00{number}.png: ") in line for number, line in enumerate(shown))


def test_a_caption_is_gone_on_with(trained: Path) -> None:
    path = trained / "shapes/000.png"
    result = answer("predict", trained / "go_on", path, "--prefix", "a blue", "--beam", "2", "--n-best", "2")
    (prediction,) = result["predictions"]
    assert prediction["output"].startswith("a blue")
    assert prediction["alternatives"][0]["output"].startswith("a blue")
    assert run("predict", trained / "go_on", path, "--prefix", "a blue", "--stream").stdout.startswith("a blue")


@pytest.mark.parametrize(("name", "plot"), [("say", "a.png"), ("go_on", "a.svg"), ("paint", "a.pdf")])
def test_where_a_model_looked_is_drawn(trained: Path, tmp_path: Path, name: str, plot: str) -> None:
    result = run("predict", trained / name, trained / "shapes/001.png", "--plot", tmp_path / plot)
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [plot]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["say", "a dog runs"], "a dog runs: cannot be read (No such file or directory)"),
        (["say", ""], "not a file"),
        (["say", "shapes"], "not a file"),
        (["say", "shapes/000.png", "--prefix", "a"], "prefix: this model was trained without prefixes; train a `vit`"),
        (
            ["paint", "shapes/000.png", "--prefix", "a"],
            "prefix: this model was trained without prefixes; train a `vit`",
        ),
        (["say", "shapes/000.png", "--masks", "out"], "--masks: this decoder gives no masks; leave it out"),
        (["paint", "shapes/000.png", "--plot", "a.txt"], "a.txt: an image ends in one of "),
        (["paint", "shapes/000.png", "--stream"], "the decoder 'main' does not write text"),
        (["paint", "shapes/rows.tsv"], "shapes/rows.tsv: not a PNG, JPEG, WEBP image"),
        (["paint", "squares.zip/train/images/none.png"], "no such file in the archive"),
        (["paint", "squares.zip/../x.png"], "x.png"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(
    trained: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(trained)
    before = tree(trained)
    assert said in refusal("predict", *arguments)
    assert tree(trained) == before


@pytest.mark.parametrize("name", bad_files())
def test_an_image_that_is_none_is_not_predicted(trained: Path, tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {name: bad_files()[name]})
    for model in ("paint", "say"):
        assert refusal("predict", trained / model, tmp_path / name).startswith(f"{tmp_path / name}: ")


def test_a_model_that_reads_texts_says_so_of_an_image(trained: Path, tmp_path: Path, tokenizer: TextTokenizer) -> None:
    small_model(tokenizer, encoder("rnn"), decoder("rnn")).save_pretrained(tmp_path / "text")
    small_ranker(tokenizer, encoder("transformer"), decoder("bi")).save_pretrained(tmp_path / "ranker")
    path = trained / "shapes/000.png"
    assert refusal("predict", tmp_path / "text", path) == f"{path}: this model reads texts, not images"
    assert refusal("predict", tmp_path / "ranker", path).startswith(f"{tmp_path / 'ranker'}: ranks candidates")
    assert "trained without prefixes" in refusal("predict", tmp_path / "text", "one", "--prefix", "two")
    assert run("predict", tmp_path / "text", "none.png").exit_code == 0  # a text like any other
    for data in (trained / "squares", trained / "squares.zip"):
        assert refusal("evaluate", tmp_path / "text", data).startswith(f"{data}")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def without_classes(path: Path) -> None:
    about = json.loads(path.read_text())
    about["model"]["tasks"]["main"]["output"]["classes"] = None
    path.write_text(json.dumps(about))


def with_fewer_classes(path: Path) -> None:
    about = json.loads(path.read_text())
    about["model"]["tasks"]["main"]["output"]["classes"] = ["ground"]
    path.write_text(json.dumps(about))


def without_image(path: Path) -> None:
    about = json.loads(path.read_text())
    about["model"]["input"] = None
    path.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", cut),
        ("model.safetensors", Path.unlink),
        ("config.json", cut),
        ("config.json", without_classes),
        ("config.json", with_fewer_classes),
        ("config.json", without_image),
    ],
)
def test_a_damaged_model_is_one_line(trained: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    shutil.copytree(trained / "paint/model", tmp_path / "model")
    damage(tmp_path / "model" / name)
    refusal("predict", tmp_path / "model", trained / "shapes/000.png")
    refusal("evaluate", tmp_path / "model", trained / "squares")


def test_an_image_may_be_as_large_as_is_allowed_and_no_larger(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(promising(30_000, 30_000))
    said = refusal("predict", trained / "paint", tmp_path / "a.png")
    assert said == f"{tmp_path / 'a.png'}: an image of over 50,000,000 pixels"
