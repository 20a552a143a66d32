"""Images in folders client/set/, one file each: .png, .jpg, .dcm and similar."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fedul.config import FileDataConfig
from fedul.core import Scaling, Schema
from fedul.data.files.assign import NamedCodes
from fedul.data.files.schema import ImageSchema
from fedul.data.files.signature import DataSignature
from fedul.errors import InputError, first_line

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".dcm")
MAX_PIXELS = 64 * 2**20
"""Larger images are refused: decoding them could exhaust the memory."""
Pixels = NDArray[np.uint8]


class ImageCollection:
    """All images below a folder: its folders are the clients, and their folders are the sets."""

    labels: NamedCodes | None = None

    def __init__(self, folder: Path, config: FileDataConfig) -> None:
        self.source, self._size = str(folder), config.image_size
        for option in ("client_column", "set_column", "label_column", "truth_column", "ignore_columns"):
            if getattr(config, option):
                raise InputError(
                    f"{option.replace('_', '-')}: is for tables; the folders of images name the client and the set."
                )
        self._files: list[Path] = []
        names: list[tuple[str, str]] = []
        for client in _folders(folder):
            for group in _folders(client):
                files = sorted(
                    p for p in group.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")
                )
                self._files += files
                names += [(client.name, group.name)] * len(files)
        if not self._files:
            raise InputError(
                f"{folder}: there are no images below it; put them into folders client/set/ ({', '.join(SUFFIXES)})."
            )
        self.clients, self.sets = (NamedCodes.of([pair[i] for pair in names]) for i in (0, 1))

    def describe_row(self, number: int) -> str:
        return str(self._files[number])

    def signature(self, train: NDArray[np.bool_]) -> DataSignature:
        """Return the form of the images: in colour if any image is; of the requested size, or of the common one."""
        first, any_colour = _size_and_colour(self._files[0])
        for file in self._files:
            size, in_colour = _size_and_colour(file)
            any_colour = any_colour or in_colour
            if not self._size and size != first:
                raise InputError(
                    f"{file}: is {size[1]} x {size[0]} pixels, but {self._files[0].name} is {first[1]} x {first[0]}; "
                    "resize them with --image-size."
                )
        height, width = (self._size, self._size) if self._size else first
        return DataSignature("images", shape=(3 if any_colour else 1, height, width), scaling=Scaling(1 / 255))

    def encode(self, schema: Schema | None) -> torch.Tensor:
        assert isinstance(schema, ImageSchema)
        pixels = np.empty((len(self._files), *schema.shape), np.uint8)
        for number, file in enumerate(self._files):
            pixels[number] = read_image(file, schema)
        return torch.from_numpy(pixels)


def image_files(path: Path) -> list[Path]:
    """Return the images to classify: one file, or all below a folder."""
    if path.is_file():
        return [path]
    files = sorted(
        p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file() and not p.name.startswith(".")
    )
    if not files:
        raise InputError(f"{path}: there are no images ({', '.join(SUFFIXES)}).")
    return files


def read_image(file: Path, schema: ImageSchema) -> Pixels:
    """Return the pixels (channels, height, width) of a file, in the form of the schema."""
    opened = Image.fromarray(_dicom(file)) if file.suffix.lower() == ".dcm" else _open_image(file)
    try:
        with opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = opened.convert("RGB" if schema.channels == 3 else "L")
    except Exception as problem:  # every decoder has its own errors for a damaged file
        raise _damaged(file, problem) from None
    if (image.height, image.width) != (schema.height, schema.width):
        shrinks = image.height >= schema.height and image.width >= schema.width
        method = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
        image = image.resize((schema.width, schema.height), method)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _size_and_colour(file: Path) -> tuple[tuple[int, int], bool]:
    """Return (height, width), and whether the image is in colour."""
    if file.suffix.lower() == ".dcm":
        return _dicom(file).shape[:2], False
    with _open_image(file) as image:
        return (image.height, image.width), image.mode not in ("1", "L", "LA", "I", "I;16", "F")


def _open_image(file: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(file)
    except Image.DecompressionBombWarning:
        raise InputError(f"{file}: is far too large for an image; reduce its size.") from None
    except Exception as problem:
        raise _damaged(file, problem) from None
    if image.width * image.height > MAX_PIXELS:
        raise InputError(f"{file}: is {image.width} x {image.height} pixels; reduce its size.")
    if image.mode.startswith("I") or image.mode == "F":  # 16 bits and more: Pillow would clip them at 255
        return Image.fromarray(_as_bytes(np.asarray(image, dtype=np.float64)))
    return image


def _dicom(file: Path) -> Pixels:
    """Return one slice as bytes, from its darkest to its brightest point."""
    from fedul.data.dicom import grey_values

    return _as_bytes(grey_values(file).astype(np.float64))


def _as_bytes(values: NDArray[np.float64]) -> Pixels:
    low, high = float(values.min()), float(values.max())
    return np.round((values - low) * (255 / (high - low or 1))).astype(np.uint8)


def _damaged(file: Path, problem: Exception) -> InputError:
    return InputError(f"{file}: not a complete image ({first_line(problem)}); get a complete copy of it.")


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
