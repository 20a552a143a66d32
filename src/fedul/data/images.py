"""Images of the user's own, one file each: client/set/*.png, .jpg, .dcm and the like."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fedul.config import OwnDataConfig
from fedul.data.form import Form
from fedul.data.own_sets import Names
from fedul.errors import InputError
from fedul.federation import Scaling
from fedul.schema import Schema
from fedul.schema.images import ImageSchema

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".dcm")
MOST_PIXELS = 64 * 2**20
"""Pixels of an image beyond which it is taken for a trap."""
Pixels = NDArray[np.uint8]


class ImageFolder:
    """All images below a folder: its folders are the clients, theirs are the sets."""

    labels: Names | None = None

    def __init__(self, folder: Path, config: OwnDataConfig) -> None:
        self.what, self._size = str(folder), config.image_size
        for option in ("client_column", "set_column", "label_column", "truth_column", "ignore_columns"):
            if getattr(config, option):
                raise InputError(f"{option.replace('_', '-')}: is for tables; images are in folders client/set/.")
        self._files: list[Path] = []
        names: list[tuple[str, str]] = []
        for client in _folders(folder):
            for group in _folders(client):
                files = sorted(p for p in group.iterdir() if p.suffix.lower() in ENDINGS and not p.name.startswith("."))
                self._files += files
                names += [(client.name, group.name)] * len(files)
        if not self._files:
            raise InputError(
                f"{folder}: no images are below it; put them into folders client/set/ ({', '.join(ENDINGS)})."
            )
        self.clients, self.sets = (_names([pair[i] for pair in names]) for i in (0, 1))

    def row(self, number: int) -> str:
        return str(self._files[number])

    def form(self, train: NDArray[np.bool_]) -> Form:
        """In colour if any image is; of the size that was asked for, or that all have."""
        first: tuple[Path, tuple[int, int]] | None = None
        colour = False
        for file in self._files:
            size, coloured = _form(file)
            colour = colour or coloured
            first = first or (file, size)
            if not self._size and size != first[1]:
                raise InputError(
                    f"{file}: is {size[1]} x {size[0]} pixels, but {first[0].name} is {first[1][1]} x {first[1][0]}; "
                    "bring them to one size with --image-size."
                )
        assert first is not None
        height, width = (self._size, self._size) if self._size else first[1]
        return Form("images", shape=(3 if colour else 1, height, width), scaling=Scaling(1 / 255))

    def encoded(self, schema: Schema | None) -> torch.Tensor:
        assert isinstance(schema, ImageSchema)
        pixels = np.empty((len(self._files), *schema.shape), np.uint8)
        for number, file in enumerate(self._files):
            pixels[number] = read_image(file, schema)
        return torch.from_numpy(pixels)


def image_files(named: Path) -> list[Path]:
    """Images to classify: one, or all below a folder."""
    if not named.exists():
        raise InputError(f"{named}: there is no such file.")
    if named.is_file():
        return [named]
    files = sorted(
        p for p in named.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file() and not p.name.startswith(".")
    )
    if not files:
        raise InputError(f"{named}: no images are there ({', '.join(ENDINGS)}).")
    return files


def read_image(file: Path, schema: ImageSchema) -> Pixels:
    """The pixels (channels, height, width) of a file, in the form of the schema."""
    opened = Image.fromarray(_dicom(file)) if file.suffix.lower() == ".dcm" else _opened(file)
    try:
        with opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = opened.convert("RGB" if schema.channels == 3 else "L")
    except Exception as problem:  # decoders have errors of their own for a damaged file
        raise _damaged(file, problem) from None
    if (image.height, image.width) != (schema.height, schema.width):
        image = image.resize(
            (schema.width, schema.height),
            Image.Resampling.BOX if _shrinks(image, schema) else Image.Resampling.BILINEAR,
        )
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _shrinks(image: Image.Image, schema: ImageSchema) -> bool:
    return image.height >= schema.height and image.width >= schema.width


def _form(file: Path) -> tuple[tuple[int, int], bool]:
    """Height, width, and whether it is in colour."""
    if file.suffix.lower() == ".dcm":
        return _dicom(file).shape[:2], False
    with _opened(file) as image:
        return (image.height, image.width), image.mode not in ("1", "L", "LA", "I", "I;16", "F")


def _opened(file: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(file)
    except Image.DecompressionBombWarning:
        raise InputError(f"{file}: is far too large for an image; shrink it.") from None
    except Exception as problem:
        raise _damaged(file, problem) from None
    if image.width * image.height > MOST_PIXELS:
        raise InputError(f"{file}: is {image.width} x {image.height} pixels; shrink it.")
    if image.mode.startswith("I") or image.mode == "F":  # 16 bits and more: Pillow would cut them off at 255
        return Image.fromarray(_as_bytes(np.asarray(image, dtype=np.float64)))
    return image


def _dicom(file: Path) -> Pixels:
    """One slice as bytes, from its darkest to its brightest point."""
    from fedul.data.dicom import grey_values

    return _as_bytes(grey_values(file).astype(np.float64))


def _as_bytes(values: NDArray[np.float64]) -> Pixels:
    low, high = float(values.min()), float(values.max())
    return np.round((values - low) * (255 / (high - low or 1))).astype(np.uint8)


def _damaged(file: Path, problem: Exception) -> InputError:
    reason = next(iter(str(problem).splitlines()), "").rstrip(".:")[:120] or type(problem).__name__
    return InputError(f"{file}: not a whole image ({reason}); get a whole copy of it.")


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _names(words: Sequence[str]) -> Names:
    known = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return Names(tuple(known), np.array([known[word] for word in words], dtype=np.int64))
