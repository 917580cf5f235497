"""Rankers whose sides read different types: images for texts, and texts for images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.commands import answer, refusal
from tests.commands import run as run_command
from tests.conftest import decoder, encoder
from tests.images import SIDE, encoded, noise, shape, write_files, write_shapes, write_zip
from tests.rankers import gradients, small_ranker
from twofold.data.batches import Moment
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.model.load import load_ranker
from twofold.outputs.ranking import CANDIDATE, Unread
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.training.gradient_caching import GradientCaching

ROWS = 60


def recipe(table: Path, **changes: Any) -> dict[str, Any]:
    """Shapes of four colors and their captions, as plain values."""
    return {
        "data": {"train": str(table), "held_out": 10},
        "input": {"kind": "text", "column": "caption", "max_tokens": 12, "tokenizer": {"size": 60}},
        "encoder": {"kind": "transformer", "width": 16, "layers": 1, "heads": 2, "dropout": 0.0},
        "candidate_encoder": {"kind": "convnet", "widths": [8, 16], "blocks": 1, "stem": 1, "norm": "group"},
        "decoder": {"kind": "bi"},
        "output": {"candidate": {"kind": "image", "column": "image"}, "contexts": ["caption", "other"]},
        "losses": [{"kind": "in_batch", "symmetric": True}],
        "train": {"max_steps": 120, "batch_rows": 16, "learning_rate": 5e-3, "warmup": 5, "candidates": 4, "seed": 1},
        **changes,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shapes and their table, and a trained ranker of them."""
    folder = tmp_path_factory.mktemp("retrieval")
    train(Recipe.of(recipe(write_shapes(folder / "shapes", ROWS))), folder / "run")
    return folder


@pytest.fixture(scope="module")
def ranker(folder: Path) -> Ranker:
    return load_ranker(folder / "run")


def right_places(count: int = 8) -> list[tuple[Path, str]]:
    """The first images of different captions."""
    captions: dict[str, int] = {}
    for number in range(ROWS):
        captions.setdefault(shape(number)[1], number)
    return [(Path(f"{number:03}.png"), caption) for caption, number in list(captions.items())[:count]]


def test_texts_find_their_images_and_images_their_texts(ranker: Ranker, folder: Path) -> None:
    named = right_places()
    paths, captions = [folder / "shapes" / name for name, _ in named], [caption for _, caption in named]
    first_hits = [ranker.rank(caption, paths, 1)[0] for caption in captions]
    assert np.mean([hit.text == str(path) for hit, path in zip(first_hits, paths, strict=True)]) > 0.6
    back = ranker.reversed()
    hits = [back.rank(path, captions, 1)[0] for path in paths]
    assert np.mean([hit.text == caption for hit, caption in zip(hits, captions, strict=True)]) > 0.6


def test_a_reversed_ranker_gives_the_same_scores(ranker: Ranker, folder: Path, tmp_path: Path) -> None:
    paths, captions = [folder / "shapes" / f"{number:03}.png" for number in range(5)], ["a red bar", "a blue cross"]
    scores = ranker.score(captions, paths)
    back = ranker.reversed()
    torch.testing.assert_close(back.score(paths, captions), scores.T, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(back.reversed().score(captions, paths), scores, atol=1e-5, rtol=1e-5)
    back.save_pretrained(tmp_path / "back")
    again = load_ranker(tmp_path / "back")
    assert again.score(paths, captions).tolist() == back.score(paths, captions).tolist()


def test_only_a_ranker_that_treats_both_sides_alike_can_be_reversed(tokenizer: TextTokenizer) -> None:
    for kind, settings in (("poly", {}), ("late", {}), ("bi", {"normalize": "candidates"})):
        ranker = small_ranker(tokenizer, encoder("rnn"), decoder(kind, **settings))
        with pytest.raises(TwofoldError, match="reversed"):
            ranker.reversed()


def test_images_are_given_as_paths_pixels_or_rows(ranker: Ranker, folder: Path) -> None:
    path = folder / "shapes" / "003.png"
    image = Image.open(path).convert("RGB")
    forms: list[Any] = [path, str(path), image, np.asarray(image), {"image": str(path), "id": "mine"}]
    scores = [ranker.score(["a red bar"], [form]).item() for form in forms]
    assert scores == pytest.approx([scores[0]] * len(forms), abs=1e-6)
    assert ranker.rank("a red bar", [forms[-1]])[0].id == "mine"
    hits = ranker.rank("a red bar", [image, np.asarray(image), path], 3)
    assert sorted(hit.id for hit in hits) == [0, 1, 2]


def test_a_batch_is_read_in_random_views_that_are_the_same_when_it_is_read_again(folder: Path, tmp_path: Path) -> None:
    content = recipe(folder / "shapes" / "rows.tsv")
    content["output"]["candidate"] |= {"augment": {"flip": True, "color": 0.3}}
    content["train"] |= {"max_steps": 2, "chunk_tokens": 20}
    losses: dict[str, list[float]] = {}
    for name, memory, color in (("twice", 1, 0.3), ("once", 1 << 20, 0.3), ("plain", 1, 0.0)):
        content["train"] |= {"memory_tokens": memory, "log_every": 1}
        content["output"]["candidate"]["augment"]["color"] = color
        train(Recipe.of(content), tmp_path / name)
        lines = map(json.loads, (tmp_path / name / "log.jsonl").read_text().splitlines())
        losses[name] = [line["loss"] for line in lines if "loss" in line]
    assert len(losses["once"]) == 2
    assert losses["twice"] == pytest.approx(losses["once"], abs=1e-5)
    assert losses["twice"] != pytest.approx(losses["plain"], abs=1e-5)


def test_gradients_of_a_batch_in_memory_are_those_of_the_plain_loss(ranker: Ranker, folder: Path) -> None:
    rows = [
        {"caption": shape(number)[1], "other": "a red bar", "image": folder / "shapes" / f"{number:03}.png"}
        for number in range(6)
    ]
    learning = load_ranker(folder / "run").train()
    batch = learning.batch(rows)
    learning.loss(batch).backward()  # type: ignore[no-untyped-call]
    plain = gradients(learning)
    GradientCaching(8, 0).backward(learning, batch, 1 / len(rows))
    cached = gradients(learning)
    assert plain.keys() == cached.keys()
    for name, value in plain.items():
        torch.testing.assert_close(cached[name], value, atol=1e-5, rtol=1e-4)


def test_each_context_of_a_row_is_learned_from_in_turn(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.tsv"
    lines = ["image\tcaption\tother", *(f"{n:03}.png\tone {n}\ttwo {n}" for n in range(4))]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = recipe(table, data={"train": str(table)})
    content["output"]["candidate"]["folder"] = str(folder / "shapes")
    read = Recipe.of(content)
    model = build_model(read, tmp_path)
    cache = cache_rows(read, model)
    rows = training_rows(read, cache, split_rows(read, cache, model), model)
    assert isinstance(model, Ranker)
    seen = []
    for epoch in range(2):
        batch = rows.batch(np.arange(4), Moment(epoch=epoch))
        assert batch is not None
        contexts, images = batch.inputs["input"], batch.inputs[CANDIDATE]
        assert isinstance(contexts, Unread)
        assert isinstance(images, Unread)
        seen.append([model.tokenizer.decode(list(ids)) for ids in contexts.items])
        assert [Path(str(item.image)) for item in images.items] == [folder / f"shapes/{n:03}.png" for n in range(4)]
    for number, pair in enumerate(zip(*seen, strict=True)):
        assert sorted(pair) == [f"one {number}", f"two {number}"]


def test_the_command_line_ranks_and_judges_images(folder: Path, tmp_path: Path) -> None:
    shapes = folder / "shapes"
    shown = answer("rank", folder / "run", "--candidates", shapes, "a red bar", "-k", "3", "--json")
    hits = shown["hits"]
    assert len(hits) == 3
    assert all(Path(hit["text"]).is_file() for hit in hits)
    files = {f"in/{path.name}": path.read_bytes() for path in sorted(shapes.glob("*.png"))}
    archive = write_zip(tmp_path / "shapes.zip", files)
    packed = answer("rank", folder / "run", "--candidates", archive / "in", "a red bar", "-k", "3", "--json")
    assert [hit["score"] for hit in packed["hits"]] == pytest.approx([hit["score"] for hit in hits], abs=1e-5)
    (tmp_path / "captions.txt").write_text("a red bar\na blue cross\n", encoding="utf-8")
    back = (
        "rank",
        folder / "run",
        "--reverse",
        "--candidates",
        tmp_path / "captions.txt",
        shapes / "000.png",
        "--json",
    )
    assert {hit["text"] for hit in answer(*back)["hits"]} == {"a red bar", "a blue cross"}
    table = shapes / "rows.tsv"
    for reverse in ([], ["--reverse"]):
        judged = answer("evaluate", folder / "run", table, *reverse, "--among", "4", "--json")
        assert judged["metrics"]["r@1"] > 0.5
        assert judged["examples"] == (ROWS if reverse else 2 * ROWS)  # each of the two captions is a question


def test_images_are_indexed_searched_and_changed_like_texts(folder: Path, tmp_path: Path) -> None:
    shapes, run = tmp_path / "shapes", folder / "run"
    write_shapes(shapes, 20)
    index = tmp_path / "shapes.index"
    line = refusal("index", "build", index, "--model", run, "--texts", shapes / "rows.tsv", "--split", "100:20")
    assert line == "split: only texts are split into passages, and the model's candidates are not texts; leave it out"
    assert not index.exists()
    assert run_command("index", "build", index, "--model", run, "--texts", shapes / "rows.tsv").exit_code == 0
    ranked = answer("rank", run, "--candidates", shapes / "rows.tsv", "a red bar", "-k", "5", "--json")["hits"]
    result = answer("search", index, "a red bar", "-k", "5", "--json")
    assert result["exact"]
    assert [hit["text"] for hit in result["hits"]] == [hit["text"] for hit in ranked]
    assert [hit["score"] for hit in result["hits"]] == pytest.approx([hit["score"] for hit in ranked], abs=1e-4)
    assert result["hits"][0]["fields"]["caption"]  # what else stands in the table can be filtered by
    path = shapes / "003.png"
    path.write_bytes((shapes / "004.png").read_bytes())  # another image under the same name
    assert run_command("index", "update", index, "--texts", shapes / "rows.tsv").exit_code == 0
    scores = {hit["text"]: hit["score"] for hit in answer("search", index, "a red bar", "-k", "20", "--json")["hits"]}
    assert scores[str(path)] == pytest.approx(scores[str(shapes / "004.png")], abs=1e-4)
    assert run_command("index", "remove", index, str(result["hits"][0]["id"])).exit_code == 0
    after = answer("search", index, "a red bar", "-k", "20", "--json")["hits"]
    assert result["hits"][0]["text"] not in {hit["text"] for hit in after}
    line = refusal("search", index, path)
    assert line == f"{path}: this model reads texts, not images"


def test_texts_are_indexed_to_be_found_by_images(folder: Path, tmp_path: Path) -> None:
    captions = ["a red bar", "a blue cross", "a green square"]
    (tmp_path / "captions.txt").write_text("".join(f"{caption}\n" for caption in captions), encoding="utf-8")
    index, image = tmp_path / "captions.index", folder / "shapes" / "000.png"
    texts = ("--texts", tmp_path / "captions.txt")
    assert run_command("index", "build", index, "--model", folder / "run", "--reverse", *texts).exit_code == 0
    back = load_ranker(folder / "run").reversed().rank(image, captions, 3)
    hits = answer("search", index, image, "-k", "3", "--json")["hits"]
    assert [hit["text"] for hit in hits] == [hit.text for hit in back]
    (tmp_path / "captions.txt").write_text("a white bar\n", encoding="utf-8")
    assert run_command("index", "add", index, *texts).exit_code == 0
    assert len(answer("search", index, image, "-k", "9", "--json")["hits"]) == 4


def test_what_does_not_fit_is_one_line(folder: Path, tmp_path: Path) -> None:
    shapes = folder / "shapes"
    (tmp_path / "captions.txt").write_text("a red bar\n", encoding="utf-8")
    path = shapes / "000.png"
    assert (
        refusal("rank", folder / "run", "--candidates", shapes, path) == f"{path}: this model reads texts, not images"
    )
    bad = write_files(tmp_path / "bad", {"a.png": b"no image", "b.png": encoded(noise(SIDE, SIDE, 1, 3))})
    assert "a.png: not a PNG" in refusal("rank", folder / "run", "--candidates", bad, "a red bar")
    assert "a red bar: cannot be read" in refusal(
        "rank", folder / "run", "--candidates", tmp_path / "captions.txt", "a red bar"
    )
    line = refusal("rank", folder / "run", "--candidates", shapes, "a red bar", "--then", "default:3")
    assert line.startswith("--then default: its candidates are texts, those of the first stage images")
    line = refusal("rank", folder / "run", "--reverse", "--candidates", tmp_path / "captions.txt", path, path)
    assert line == "the context: 2 images, where one is read; give one"
    content = recipe(shapes / "rows.tsv")
    with pytest.raises(TwofoldError, match="reads both sides as one text"):
        Recipe.of({**content, "decoder": {"kind": "cross"}, "candidate_encoder": None})
    with pytest.raises(TwofoldError, match=r"output\.candidate: the encoder 'transformer' reads tokens"):
        Recipe.of({**content, "candidate_encoder": None})
    with pytest.raises(TwofoldError, match="broken: skip does not go with ranking"):
        Recipe.of({**content, "output": {"candidate": {"kind": "image", "column": "image", "broken": "skip"}}})
    with pytest.raises(TwofoldError, match="mine"):
        Recipe.of({**content, "mine": {"model": "default"}})
