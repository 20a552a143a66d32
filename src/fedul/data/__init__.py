"""The research data sets by name: what each is, where its files are, and how it is read.

A reader is imported only when its data is read, so that listing the data sets needs neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from fedul.data.source import LabelledData, complete_folder, find_folder, search_folders
from fedul.errors import InputError, unknown


@dataclass(frozen=True)
class Source:
    """A data set: facts to list, the files that make it up, and the function that reads them."""

    reader: str  # "module:function"
    about: str
    licence: str
    train_rows: int
    test_rows: int
    classes: int
    files: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ("",)  # each file may have any of these endings
    below: str = ""  # the folder that the published archive brings along
    obtain: str = ""  # for files that fedul cannot fetch: what a user does to get them

    @property
    def embedded(self) -> bool:
        """Whether the data comes with the package."""
        return not self.files

    @property
    def rows(self) -> int:
        """Training and test rows together."""
        return self.train_rows + self.test_rows


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
        below="cifar-10-batches-bin",
    ),
    "mednist": Source(
        "fedul.data.mednist:load",
        "Medical images of six kinds (CT, MRI, X-ray), 28 x 28 (MONAI's MedNIST)",
        "CC BY-SA 4.0",
        train_rows=48_762,
        test_rows=9_752,
        classes=6,
        files=("mednist28.npz",),
        obtain="make mednist28.npz (images, labels, class_names) of MONAI's MedNIST and put it into the data folder",
    ),
    "brain-mri": Source(
        "fedul.data.brain_mri:load",
        "Brain MRI with three kinds of tumour or none, 28 x 28 (Kaggle)",
        "unclear; for tests only",
        train_rows=5_501,
        test_rows=1_092,
        classes=4,
        files=("brain_mri28.npz",),
        obtain="make brain_mri28.npz (train_ and test_ images, labels, unique; class_names) of Kaggle's brain tumour "
        "MRI and put it into the data folder",
    ),
    "rsna-hemorrhage": Source(
        "fedul.data.rsna:load",
        "Head CT with one of five kinds of intracranial hemorrhage or none, 3 x 28 x 28 (RSNA 2019)",
        "RSNA's terms: not commercial",
        train_rows=82_500,  # in round numbers, as the paper counts them
        test_rows=23_500,
        classes=6,
        files=("stage_2_train.csv",),
        below="rsna-intracranial-hemorrhage-detection",
        obtain="unpack stage_2_train.csv and stage_2_train/ of Kaggle's rsna-intracranial-hemorrhage-detection into "
        "the data folder",
    ),
}


def read(name: str, data_dir: str | None = None) -> LabelledData:
    """The data set of this name, read from its files.

    >>> read("digits").train_inputs.shape
    torch.Size([3823, 1, 8, 8])
    """
    module, _, function = _source(name).reader.partition(":")
    reader = cast(Callable[[str | None], LabelledData], getattr(import_module(module), function))
    return reader(data_dir)


def found(name: str, data_dir: str | None = None) -> Path | None:
    """Where the files of a data set are on this machine (embedded data: its one file); None if they are not.

    >>> found("digits").name
    'digits.npz'
    """
    source = _source(name)
    if source.embedded:
        return Path(__file__).with_name(f"{name}.npz")
    return complete_folder(name, source.files, data_dir, below=source.below, suffixes=source.suffixes)


def folder_of(name: str, data_dir: str | None) -> Path:
    """Where the files of a data set are; else an InputError that says what is missing and how to get it."""
    source = _source(name)
    if source.obtain and found(name, data_dir) is None:
        looked = ", ".join(str(folder) for folder in search_folders(data_dir))
        raise InputError(
            f"{name} is not on this machine (looked in {looked}) and cannot be fetched; {source.obtain}, "
            "to which --data-dir or FEDUL_DATA points."
        )
    return find_folder(name, source.files, data_dir, below=source.below, suffixes=source.suffixes)


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    return SOURCES[name]
