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
from numpy.typing import NDArray

from fedul.core import Scaling
from fedul.data import IDX_FILES, SOURCES, source_folder
from fedul.data.arrays import labelled_images
from fedul.data.source import LabelledData
from fedul.errors import InputError

LARGEST = 2 * 1024**3
"""Largest size in bytes that a header may announce."""

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
    """Read handwritten digits: 60,000 training and 10,000 test rows."""
    return _load("mnist", DIGITS, data_dir)


def load_fashion_mnist(data_dir: str | None) -> LabelledData:
    """Read images of clothing: 60,000 training and 10,000 test rows."""
    return _load("fashion-mnist", FASHION, data_dir)


def read_idx(path: Path, remedy: str = "get a complete copy of it") -> NDArray[np.uint8]:
    """Return the bytes of an idx file in their shape; an InputError says that it is truncated, corrupt or not idx.

    No more is unpacked than the header announces, so that a small file cannot fill the memory.
    """
    try:
        with _open_idx(path) as file:
            shape = _read_shape(file)
            values = _read_exactly(file, math.prod(shape))
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as problem:
        raise InputError(f"{path}: not a complete idx file ({problem}); {remedy}.") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror or problem}); {remedy}.") from None
    return np.frombuffer(values, np.uint8).reshape(shape)


def _load(name: str, classes: tuple[str, ...], data_dir: str | None) -> LabelledData:
    folder = source_folder(name, data_dir)
    remedy = f"delete it and fetch it again with 'fedul datasets fetch {name}'"
    paths = [next(p for end in SOURCES[name].suffixes if (p := folder / (file + end)).is_file()) for file in IDX_FILES]
    files = [(path, read_idx(path, remedy)) for path in paths]
    train, test = (labelled_images(files[i], files[i + 1], len(classes), remedy) for i in (0, 2))
    for other, labels in FIRST_LABELS.items():
        if other != name and tuple(train[1][: len(labels)]) == labels:
            raise InputError(
                f"{folder}: holds {other}, not {name}; point --data-dir or FEDUL_DATA to the folder above it."
            )
    return LabelledData(*train, *test, classes, Scaling(scale=1 / 255))


def _open_idx(path: Path) -> IO[bytes]:
    # Browsers and servers unpack or rename these files, so the first bytes decide, not the name.
    with open(path, "rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path, "rb")) if gzipped else open(path, "rb")


def _read_shape(file: IO[bytes]) -> tuple[int, ...]:
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


def _read_exactly(file: IO[bytes], count: int) -> bytearray:
    values = bytearray()
    # In pieces: one large read would allocate what a false header announces. gzip verifies its checksum only in the
    # read past the end.
    while piece := file.read(min(2**20, count + 1 - len(values))):
        values += piece
    if len(values) < count:
        raise ValueError(f"it ends after {len(values):,} of {count:,} bytes")
    if len(values) > count:
        raise ValueError(f"it continues after the {count:,} bytes that its header announces")
    return values
