"""Small models in the place of the named ones, as a pull leaves them in a cache: for commands of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSequenceClassification

from tests.encoders.test_mobilenet import torchvision_weights
from tests.encoders.tiny_backbones import FAMILIES, save, tokenizer_of
from twofold import storage
from twofold.data.named_models import FOLDER, FORMAT, RECORD


def write_named_models(cache: Path) -> None:
    """Writes stand-ins of the named models that no package holds."""
    reranker, sentences, image = (
        cache / FOLDER / name for name in ("default-reranker", "default-multilingual-e5", "default-image")
    )
    _reranker(reranker)
    save("bert", sentences)
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"))
    modules = [
        {"idx": n, "path": path, "type": f"sentence_transformers.models.{k}"} for n, (k, path) in enumerate(kinds)
    ]
    storage.write_json(sentences / "modules.json", modules)
    storage.write_json(sentences / "1_Pooling" / "config.json", pooling)
    image.mkdir(parents=True)
    save_file(torchvision_weights(), image / "model.safetensors")
    for folder in (reranker, sentences, image):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        sums = {path.relative_to(folder).as_posix(): storage.sha256(path) for path in files}
        storage.write_checked_json(folder / RECORD, {"format": FORMAT, "source": "the tests", "files": sums})


def _reranker(folder: Path) -> None:
    """A small classifier whose layers are as wide as those of the re-ranker, so that recipes suit it."""
    torch.manual_seed(0)
    sizes = {**FAMILIES["bert"], "hidden_size": 384, "max_position_embeddings": 160, "num_hidden_layers": 1}
    config = AutoConfig.for_model("bert", **sizes, num_labels=1)
    model: Any = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer_of("bert").save_pretrained(folder)
