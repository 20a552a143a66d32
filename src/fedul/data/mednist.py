"""MedNIST: 58,514 medical images of six kinds, in mednist28.npz (images, labels, class_names).

MONAI's MedNIST by B. J. Erickson, CC BY-SA 4.0, made smaller and without exact duplicates. It tells modalities and
parts of the body apart, not diseases, so it is easy. It has no published split: the rows to test on are the first
sixth (9,752) of a permutation by the generator of the key (0, "mednist", "test"), whatever the seed of a run.
"""

from __future__ import annotations

import numpy as np

from fedul.data import SOURCES, folder_of
from fedul.data.npz import class_names, labelled_images, read_npz
from fedul.data.source import LabelledData
from fedul.federation import Scaling
from fedul.randomness import numpy_generator

FILE = "mednist28.npz"
REMEDY = f"get a whole copy of {FILE}"


def load(data_dir: str | None) -> LabelledData:
    """The images: 48,762 to train on and 9,752 to test on."""
    path, classes = folder_of("mednist", data_dir) / FILE, SOURCES["mednist"].classes
    stored = read_npz(path, ("images", "labels", "class_names"), REMEDY)
    images, labels = labelled_images(path, stored["images"], stored["labels"], classes, REMEDY)
    order = numpy_generator(0, "mednist", "test").permutation(len(labels))
    test, train = np.sort(order[: len(order) // 6]), np.sort(order[len(order) // 6 :])
    return LabelledData(
        train_inputs=images[train],
        train_labels=labels[train],
        test_inputs=images[test],
        test_labels=labels[test],
        classes=class_names(path, stored["class_names"], classes, REMEDY),
        scaling=Scaling(scale=1 / 255),
    )
