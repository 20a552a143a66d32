"""Benchmark data sets by name: description, files and reader of each.

A reader is imported only when its data is read, so that listing the data sets needs neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedul._utils.lazy import import_object
from fedul.data.source import LabelledData, Source, find_data_folder, missing_files_error
from fedul.errors import unknown_name

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

SOURCES: dict[str, Source] = {
    "digits": Source(
        "fedul.data.digits:load",
        "Handwritten digits of 43 writers, 8 x 8, test rows by other writers (UCI optical digits)",
        "CC BY 4.0",
        train_rows=3_823,
        test_rows=1_797,
        classes=10,
    ),
    "mnist": Source(
        "fedul.data.idx:load_mnist",
        "Handwritten digits, 28 x 28 (LeCun et al.)",
        "CC BY-SA 3.0",
        train_rows=60_000,
        test_rows=10_000,
        classes=10,
        files=IDX_FILES,
        suffixes=(".gz", ""),
    ),
    "fashion-mnist": Source(
        "fedul.data.idx:load_fashion_mnist",
        "Articles of clothing, 28 x 28 (Zalando)",
        "MIT",
        train_rows=60_000,
        test_rows=10_000,
        classes=10,
        files=IDX_FILES,
        suffixes=(".gz", ""),
    ),
    "cifar10": Source(
        "fedul.data.cifar10:load",
        "Colour photographs of animals and vehicles, 3 x 32 x 32 (Krizhevsky)",
        "none stated; cite Krizhevsky 2009",
        train_rows=50_000,
        test_rows=10_000,
        classes=10,
        files=(*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
        archive_folder="cifar-10-batches-bin",
    ),
    "mednist": Source(
        "fedul.data.medical_images:load_mednist",
        "Medical images of six kinds (CT, MRI, X-ray), 28 x 28 (MONAI's MedNIST)",
        "CC BY-SA 4.0",
        train_rows=48_762,
        test_rows=9_752,
        classes=6,
        files=("mednist28.npz",),
        instructions="make mednist28.npz (images, labels, class_names) of MONAI's MedNIST and put it into the data "
        "folder",
    ),
    "brain-mri": Source(
        "fedul.data.medical_images:load_brain_mri",
        "Brain MRI with three kinds of tumour or none, 28 x 28 (Kaggle)",
        "unclear; for tests only",
        train_rows=5_501,
        test_rows=1_092,
        classes=4,
        files=("brain_mri28.npz",),
        instructions="make brain_mri28.npz (train_ and test_ images, labels, unique; class_names) of Kaggle's brain "
        "tumour MRI and put it into the data folder",
    ),
    "rsna-hemorrhage": Source(
        "fedul.data.rsna:load",
        "Head CT with one of five kinds of intracranial hemorrhage or none, 3 x 28 x 28 (RSNA 2019)",
        "RSNA's terms: not commercial",
        train_rows=82_500,  # round numbers, as in the paper
        test_rows=23_500,
        classes=6,
        files=("stage_2_train.csv",),
        archive_folder="rsna-intracranial-hemorrhage-detection",
        instructions="unpack stage_2_train.csv and stage_2_train/ of Kaggle's rsna-intracranial-hemorrhage-detection "
        "into the data folder",
    ),
}


def read_source(name: str, data_dir: str | None = None) -> LabelledData:
    """Read the data set of this name.

    Examples
    --------
    >>> read_source("digits").train_inputs.shape
    torch.Size([3823, 1, 8, 8])
    """
    reader: Callable[[str | None], LabelledData] = import_object(_get_source(name).reader)
    return reader(data_dir)


def find_source(name: str, data_dir: str | None = None) -> Path | None:
    """Return the folder of a data set (embedded data: its file); None if it is not on this machine.

    Examples
    --------
    >>> find_source("digits").name
    'digits.npz'
    """
    source = _get_source(name)
    return Path(__file__).with_name(f"{name}.npz") if source.embedded else find_data_folder(name, source, data_dir)


def source_folder(name: str, data_dir: str | None) -> Path:
    """Return the folder of a data set; an InputError says what is missing and how to get it."""
    source = _get_source(name)
    folder = find_data_folder(name, source, data_dir)
    if folder is None:
        raise missing_files_error(name, source, data_dir)
    return folder


def _get_source(name: str) -> Source:
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    return SOURCES[name]
