"""Brain MRI with three kinds of tumour or none, in brain_mri28.npz (train_* and test_*: images, labels, unique).

A public set of Kaggle, made smaller. Many of its images stand there several times, 189 files even in both splits: only
rows that the `unique` masks mark are read, 5,501 of 5,708 to train on and 1,092 of 1,311 to test on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedul.data import SOURCES, folder_of
from fedul.data.npz import Arrays, class_names, labelled_images, read_npz
from fedul.data.source import LabelledData
from fedul.errors import InputError
from fedul.federation import Scaling
from fedul.truth import Labels

FILE = "brain_mri28.npz"
REMEDY = f"get a whole copy of {FILE}"
ARRAYS = tuple(f"{part}_{what}" for part in ("train", "test") for what in ("images", "labels", "unique"))


def load(data_dir: str | None) -> LabelledData:
    """The images that stand there once, in their published split."""
    path, classes = folder_of("brain-mri", data_dir) / FILE, SOURCES["brain-mri"].classes
    stored = read_npz(path, (*ARRAYS, "class_names"), REMEDY)
    names = class_names(path, stored["class_names"], classes, REMEDY)
    train, test = (_unique(path, stored, part, classes) for part in ("train", "test"))
    return LabelledData(*train, *test, names, Scaling(scale=1 / 255))


def _unique(path: Path, stored: Arrays, part: str, classes: int) -> tuple[torch.Tensor, Labels]:
    images, labels = labelled_images(path, stored[f"{part}_images"], stored[f"{part}_labels"], classes, REMEDY)
    unique = stored[f"{part}_unique"]
    if unique.shape != labels.shape or unique.dtype != np.bool_:
        raise InputError(
            f"{path}: expected a yes or no in {part}_unique for each of {len(labels)} images, found {unique.dtype} "
            f"of shape {unique.shape}; {REMEDY}."
        )
    return images[torch.from_numpy(unique)], labels[unique]
