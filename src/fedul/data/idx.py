"""MNIST and Fashion-MNIST from their idx files, plain or gzipped.

LeCun et al., Gradient-based learning applied to document recognition, 1998; Xiao et al., Fashion-MNIST, 2017.
An idx file is two zero bytes, a type, the number of dimensions, each as 32 bits big-endian, and the values.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.data import IDX_FILES, SOURCES, folder_of
from fedul.data.source import LabelledData
from fedul.errors import InputError
from fedul.federation import Scaling
from fedul.truth import Labels

LARGEST = 2 * 1024**3
"""Bytes of values that a header may announce."""

DIGITS = tuple("0123456789")
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

# The two data sets have the same file names and shapes; only their values tell them apart.
FIRST_LABELS = {
    "mnist": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7),
    "fashion-mnist": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9),
}


def load_mnist(data_dir: str | None) -> LabelledData:
    """Handwritten digits: 60,000 to train on and 10,000 to test on."""
    return _load("mnist", DIGITS, data_dir)


def load_fashion_mnist(data_dir: str | None) -> LabelledData:
    """Articles of clothing: 60,000 to train on and 10,000 to test on."""
    return _load("fashion-mnist", FASHION, data_dir)


def read_idx(path: Path, remedy: str = "get a whole copy of it") -> NDArray[np.uint8]:
    """The bytes of an idx file in their shape; a file that is cut, corrupt or not idx is an InputError.

    No more is unpacked than the header announces, so that a small file cannot fill the memory.
    """
    try:
        with _opened(path) as file:
            shape = _shape(file)
            values = _exactly(file, math.prod(shape))
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as problem:
        raise InputError(f"{path}: not a whole idx file ({problem}); {remedy}.") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror or problem}); {remedy}.") from None
    return np.frombuffer(values, np.uint8).reshape(shape)


def _load(name: str, classes: tuple[str, ...], data_dir: str | None) -> LabelledData:
    folder = folder_of(name, data_dir)
    paths = [_path(folder, file, SOURCES[name].suffixes) for file in IDX_FILES]
    remedy = f"delete it and fetch it again with 'fedul datasets fetch {name}'"
    train_inputs, train_labels = _pair(paths[0], paths[1], len(classes), remedy)
    test_inputs, test_labels = _pair(paths[2], paths[3], len(classes), remedy)
    for other, labels in FIRST_LABELS.items():
        if other != name and tuple(train_labels[: len(labels)]) == labels:
            raise InputError(
                f"{folder}: holds {other}, not {name}; point --data-dir or FEDUL_DATA to the folder above it."
            )
    return LabelledData(train_inputs, train_labels, test_inputs, test_labels, classes, Scaling(scale=1 / 255))


def _path(folder: Path, file: str, suffixes: tuple[str, ...]) -> Path:
    return next(path for end in suffixes if (path := folder / (file + end)).is_file())


def _pair(images_path: Path, labels_path: Path, classes: int, remedy: str) -> tuple[torch.Tensor, Labels]:
    images, labels = read_idx(images_path, remedy), read_idx(labels_path, remedy)
    if images.ndim != 3 or images.shape[1:] != (28, 28) or not len(images):
        raise InputError(f"{images_path}: expected images of 28 x 28, found shape {images.shape}; {remedy}.")
    if labels.shape != (len(images),):
        raise InputError(
            f"{labels_path}: expected a label for each of {len(images)} images, found shape {labels.shape}; {remedy}."
        )
    if labels.max() >= classes:
        raise InputError(f"{labels_path}: labels must be in 0..{classes - 1}, found {labels.max()}; {remedy}.")
    return torch.from_numpy(images).unsqueeze(1), labels.astype(np.int64)  # (n, 1, 28, 28), (n,)


def _opened(path: Path) -> IO[bytes]:
    # Browsers and servers unpack or rename these files, so the first bytes decide and not the name.
    with open(path, "rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path, "rb")) if gzipped else open(path, "rb")


def _shape(file: IO[bytes]) -> tuple[int, ...]:
    magic = file.read(4)
    if len(magic) < 4:
        raise ValueError("it ends within its header")
    if magic[:2] != b"\0\0" or not 1 <= magic[3] <= 4:
        raise ValueError(f"it begins with the bytes {magic.hex(' ')}")
    if magic[2] != 0x08:
        raise ValueError("its values are not unsigned bytes")
    sizes = file.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise ValueError("it ends within its header")
    shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, len(sizes), 4))
    if math.prod(shape) > LARGEST:
        raise ValueError(f"its header announces {math.prod(shape):,} bytes")
    return shape


def _exactly(file: IO[bytes], count: int) -> bytearray:
    values = bytearray()
    # In pieces: one large read would reserve what a false header announces. Only the read past the end makes
    # gzip compare its checksum.
    while piece := file.read(min(2**20, count + 1 - len(values))):
        values += piece
    if len(values) < count:
        raise ValueError(f"it ends after {len(values):,} of {count:,} bytes")
    if len(values) > count:
        raise ValueError(f"it goes on after the {count:,} bytes that its header announces")
    return values
