"""Two data sets of medical images, 28 x 28 pixels, in .npz files that the user makes.

MedNIST has 58,514 images of six kinds (images, labels, class_names). MONAI's MedNIST by B. J. Erickson, CC BY-SA 4.0,
resized and without exact duplicates. Its classes are modalities and parts of the body, not diseases, so it is easy. It
has no published split: the test rows are the first sixth (9,752) of a permutation by the generator with the key
(0, "mednist", "test"), independent of the seed of a run.

Brain MRI has three kinds of tumour or none (train_* and test_*: images, labels, unique; class_names). A public data set
of Kaggle, resized. Many images occur several times, 189 files in both splits. Only rows that the `unique` masks mark
are read: 5,501 of 5,708 training and 1,092 of 1,311 test rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedul._utils.randomness import numpy_generator
from fedul.core import Labels, Scaling
from fedul.data import SOURCES, source_folder
from fedul.data.arrays import Arrays, labelled_images, read_npz
from fedul.data.source import LabelledData
from fedul.errors import InputError

BYTES = Scaling(scale=1 / 255)


def load_mednist(data_dir: str | None) -> LabelledData:
    """Read MedNIST: 48,762 training and 9,752 test rows."""
    path, stored, classes = _read("mednist", data_dir, ("images", "labels"))
    images, labels = _images(path, stored, "", len(classes))
    order = numpy_generator(0, "mednist", "test").permutation(len(labels))
    test, train = np.sort(order[: len(order) // 6]), np.sort(order[len(order) // 6 :])
    return LabelledData(images[train], labels[train], images[test], labels[test], classes, BYTES)


def load_brain_mri(data_dir: str | None) -> LabelledData:
    """Read the unique images of brain MRI, in their published split."""
    names = [f"{part}_{what}" for part in ("train", "test") for what in ("images", "labels", "unique")]
    path, stored, classes = _read("brain-mri", data_dir, names)
    train, test = (_unique_images(path, stored, part, len(classes)) for part in ("train_", "test_"))
    return LabelledData(*train, *test, classes, BYTES)


def _read(name: str, data_dir: str | None, arrays: Sequence[str]) -> tuple[Path, Arrays, tuple[str, ...]]:
    """Return the file of a data set, its arrays and the names of its classes."""
    source = SOURCES[name]
    path = source_folder(name, data_dir) / source.files[0]
    stored = read_npz(path, (*arrays, "class_names"), _remedy(path))
    names = stored["class_names"]
    if names.shape != (source.classes,) or names.dtype.kind != "U" or len(set(names.tolist())) < source.classes:
        raise InputError(f"{path}: expected {source.classes} different class names; {_remedy(path)}.")
    return path, stored, tuple(names.tolist())


def _images(path: Path, stored: Arrays, part: str, classes: int) -> tuple[torch.Tensor, Labels]:
    images, labels = stored[f"{part}images"], stored[f"{part}labels"]
    return labelled_images((path, images), (path, labels), classes, _remedy(path))


def _unique_images(path: Path, stored: Arrays, part: str, classes: int) -> tuple[torch.Tensor, Labels]:
    images, labels = _images(path, stored, part, classes)
    unique = stored[f"{part}unique"]
    if unique.shape != labels.shape or unique.dtype != np.bool_:
        raise InputError(
            f"{path}: expected true or false in {part}unique for each of {len(labels)} images, found {unique.dtype} "
            f"of shape {unique.shape}; {_remedy(path)}."
        )
    return images[torch.from_numpy(unique)], labels[unique]


def _remedy(path: Path) -> str:
    return f"get a complete copy of {path.name}"
