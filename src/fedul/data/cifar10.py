"""CIFAR-10 in its published binary layout: records of one label byte and 3,072 bytes, channel by channel.

A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. The five training batches and the
test batch have the same number of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.core import Scaling
from fedul.data import SOURCES, source_folder
from fedul.data.source import LabelledData
from fedul.errors import InputError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + 3 * 32 * 32
RECORDS = 10_000  # in a published batch
REMEDY = "delete it and fetch it again with 'fedul datasets fetch cifar10'"


def load(data_dir: str | None) -> LabelledData:
    """Read the photographs: 50,000 training and 10,000 test rows."""
    folder = source_folder("cifar10", data_dir)
    *train, test = (_read_batch(folder / file) for file in SOURCES["cifar10"].files)
    for file, batch in zip(SOURCES["cifar10"].files, train, strict=False):
        # A file truncated at the end of a record still holds whole records.
        if len(batch) != len(test):
            raise InputError(
                f"{folder / file}: {len(batch)} records where test_batch.bin has {len(test)}; "
                "delete the shorter of the two and fetch it again with 'fedul datasets fetch cifar10'."
            )
    return LabelledData(
        train_inputs=_images(train),
        train_labels=np.concatenate([batch[:, 0] for batch in train]).astype(np.int64),
        test_inputs=_images([test]),
        test_labels=test[:, 0].astype(np.int64),
        classes=_read_class_names(folder / "batches.meta.txt"),
        scaling=Scaling(scale=1 / 255),
    )


def _read_batch(path: Path) -> NDArray[np.uint8]:
    try:
        size = path.stat().st_size
        records = size // RECORD
        if size % RECORD or not 1 <= records <= RECORDS:
            raise InputError(
                f"{path}: {size:,} bytes are not 1 to {RECORDS:,} records of {RECORD:,} bytes each; {REMEDY}."
            )
        batch = np.fromfile(path, np.uint8, records * RECORD).reshape(records, RECORD)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror or problem}); {REMEDY}.") from None
    if batch[:, 0].max() >= len(CLASSES):
        raise InputError(f"{path}: labels must be in 0..9, found {batch[:, 0].max()}; {REMEDY}.")
    return batch


def _images(batches: Sequence[NDArray[np.uint8]]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([batch[:, 1:] for batch in batches]).reshape(-1, 3, 32, 32))


def _read_class_names(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return CLASSES
    try:
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError):
        names = ()
    if len(set(names)) != len(CLASSES) or len(names) != len(CLASSES):
        raise InputError(f"{path}: expected {len(CLASSES)} different class names, one per line; {REMEDY}.")
    return names
