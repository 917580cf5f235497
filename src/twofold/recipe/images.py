"""Images → masks or captions as a recipe: folders, archives and tables of images, and how they are looked at."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import hold_out
from twofold.data.cache import Cache, Field
from twofold.data.fields import SOURCE, TooLong
from twofold.data.files import Row, fingerprint, read_rows
from twofold.data.image_fields import MaskField, NameField
from twofold.data.image_files import find_files
from twofold.data.image_rows import NAME, ImageRows
from twofold.data.images import files_of, image_names, images_fingerprint, read_images
from twofold.data.views import Augment, ImageSettings
from twofold.errors import TwofoldError, listed
from twofold.model import Model, ModelConfig
from twofold.model.config import MaskSettings
from twofold.progress import bar
from twofold.recipe.base import Input, Split, check_columns, check_lengths, held_out_rows
from twofold.recipe.pair import PairRecipe
from twofold.recipe.text import make_tokenizers
from twofold.training.config import ImageTrainConfig


@dataclass(frozen=True)
class ImageData:
    """What to learn from."""

    train: str
    """A table that names images, a folder of images, or a folder inside a zip archive: images.zip/train."""
    images: str | None = None
    """The folder or archive of the images that a table names; the table's own folder unless given."""
    image: str = "image"
    """The column of a table that names the image."""
    target: str | tuple[str, ...] = "mask"
    """The column that names the mask, or the columns of the captions; in a folder masks lie in `masks/`."""
    dev: str | None = None
    """Rows to judge by while training, of the same form."""
    held_out: int = 0
    """Instead of `dev`: how many training rows are drawn by seed, not learned from, and judged by."""
    held_out_share: float | None = None
    """The largest share of the rows that `held_out` may take, if there is such a limit; at least one row is."""
    view: ImageSettings = field(default_factory=ImageSettings)
    """Size, normalization, and what happens to an image that cannot be used."""
    augment: Augment = field(default_factory=Augment)
    """Random views while training."""
    classes: tuple[str, ...] = ()
    """With masks: the names of the classes, in the order of their numbers."""
    first_class: int = 0
    """With masks: the number of the first class."""
    ignore: int | None = None
    """With masks: the number of pixels that do not count."""
    max_target: int = 50
    """With captions: the most tokens of one."""
    too_long: TooLong = "cut"
    """What happens to longer ones: cut loses their tail and counts them in the log, refuse ends with the line."""
    prefix: float = 0.0
    """With a `vit` that reads a prefix: how often an image is read with the beginning of one of its captions, of a
    length drawn evenly from 0, whose rest is then to be written; otherwise with none, and all captions are."""

    def __post_init__(self) -> None:
        if self.dev and self.held_out:
            raise ValueError("give dev or held_out, not both; data.held_out=0 or data.dev=null leaves one out")
        check_lengths(self, "max_target")
        if self.held_out_share is not None and not 0 < self.held_out_share <= 1:
            raise ValueError("held_out_share must be above 0 and at most 1")
        if self.held_out < 0 or self.max_target < 1 or not 0 <= self.prefix <= 1:
            raise ValueError("held_out must be at least 0, max_target at least 1, prefix from 0 to 1")
        self.masks()  # says what is wrong with them

    def masks(self) -> MaskSettings | None:
        """What the numbers of a mask stand for, if classes are named."""
        return MaskSettings(self.classes, self.first_class, self.ignore) if self.classes else None


@dataclass(frozen=True)
class ImageRecipe(PairRecipe):
    """A recipe whose encoder reads images."""

    data: ImageData
    train: ImageTrainConfig = field(default_factory=ImageTrainConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data.prefix and not getattr(self.encoder, "prefix", False):
            raise ValueError("data.prefix needs an encoder that reads a text as well: kind: vit, prefix: true")
        if self.data.prefix and sum(slot.part.writes == "text" for slot in self.slots.values()) > 1:
            raise ValueError("data.prefix needs a single decoder that writes text: each would begin its own caption")

    def model_config(self) -> ModelConfig:
        """What the model is built from."""
        data = self.data
        return ModelConfig(
            encoder=self.encoder,
            decoders=self.slots,
            source=data.image,
            max_source=data.max_target,
            max_target=data.max_target,
            too_long=data.too_long,
            generate=self.generate,
            image=data.view,
            mask=data.masks(),
        )

    def inputs(self) -> dict[str, Input]:
        found = self.start_inputs()
        for setting, where in {"data.train": self.data.train, "data.dev": self.data.dev}.items():
            if where:
                table = find_files(where) is None
                if table:
                    found[setting] = Input(where, partial(fingerprint, where))
                files = files_of(where, self.data.images)
                names = image_names(where, self.data.images, self.data.image, self._mask())
                images = Input(files.place(""), partial(files.sum, names), files.fingerprint(names))
                found[f"images of {setting}" if table else setting] = images
        return found

    def model(self, folder: Path) -> Model:
        config = self.model_config()
        reads = any(slot.part.writes != "mask" for slot in config.decoders.values())  # masks are read after it is built
        if reads and self.data.view.broken == "refuse" and find_files(self.data.train) is None:
            check_columns(read_rows(self.data.train), {"data.image": self.data.image, **self.targets()})
        written = {name: slot.target for name, slot in config.decoders.items() if slot.part.writes == "text"}
        columns = {name: "\t".join([one] if isinstance(one, str) else one) for name, one in written.items()}
        own = self.own_tokenizer()
        if own is not None:  # the weights it starts from belong to its tokens
            tokenizers = dict.fromkeys(columns, own)
        else:
            tokenizers = make_tokenizers(self.tokenizer, columns, folder, self._texts) if columns else {}
        return self.built(config, tokenizers, self._read(self.data.train))

    def cache(self, model: Model) -> Cache:
        fields: dict[str, Field] = {NAME: NameField(model.source.column), SOURCE: model.source}
        for name, target in model.targets.items():
            if isinstance(target, MaskField):
                fields[f"{NAME}_{name}"] = NameField(target.column)
            fields[name] = target
        key = images_fingerprint(self.data.train, self.data.images, self.data.image, self._mask())
        with bar("looking through the images", None) as report:
            return Cache.of(self.data.train, fields, report, self._read, key)

    def split(self, cache: Cache, model: Model) -> Split:
        """The rows that can be used, but for those that are held out."""
        usable = np.ones(cache.rows, bool)
        for name in (SOURCE, *model.targets):
            usable &= cache.columns[name].lengths > 0
        rows = np.flatnonzero(usable)
        if not len(rows):
            raise TwofoldError(f"{self.data.train}: no row can be used")
        if len(rows) < cache.rows:
            left = [
                cache.columns[NAME].row(row).tobytes().decode(errors="replace")
                for row in np.flatnonzero(~usable).tolist()
            ]
            said = f"{self.data.train}: {len(left):,} of {cache.rows:,} rows cannot be used"
            warnings.warn(f"{said}: {listed([one or '(no image)' for one in left])}", stacklevel=2)
        if self.data.dev:
            judged = list(model.read(self.data.dev, self.data.images))
            if not judged:
                raise TwofoldError(f"{self.data.dev}: no row can be used")
            return Split(rows, judged)
        kept, held = hold_out(len(rows), held_out_rows(self.data, len(rows)), self.train.seed)
        wanted = set(rows[held].tolist())
        judged = [row for number, row in enumerate(self._read(self.data.train)) if number in wanted]
        return Split(rows[kept], judged)

    def rows(self, cache: Cache, rows: NDArray[np.int64], model: Model) -> ImageRows:
        data, batch, seed = self.data, self.train.batch_rows, self.train.seed
        assert batch
        files = files_of(data.train, data.images)
        return ImageRows(cache, rows, files, model.source, model.targets, data.augment, data.prefix, batch, seed)

    def _read(self, where: Any) -> Iterator[Row]:
        return read_images(where, self.data.images, self.data.image, self._mask())

    def _mask(self) -> str | None:
        """The column of the masks, if any are to be painted."""
        return next((str(slot.target) for slot in self.slots.values() if slot.part.writes == "mask"), None)

    def _texts(self, columns: Sequence[str], report: Any) -> Iterator[str]:
        for number, row in enumerate(self._read(self.data.train), start=1):
            for column in (one for joined in columns for one in joined.split("\t")):
                try:
                    text = row.text(column)
                except TwofoldError:
                    if self.data.view.broken == "refuse":
                        raise
                    continue
                yield from [text] if isinstance(text, str) else text
            report(number)
