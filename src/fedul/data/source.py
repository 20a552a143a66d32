"""Descriptions of data sets, the labelled data that their readers return, and the search for their files.

Importing this module does not import torch, so that data sets can be listed and fetched quickly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedul.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from fedul.core import Labels, Scaling


@dataclass(frozen=True)
class Source:
    """Description of a data set, an entry of `fedul.data.SOURCES`.

    Parameters
    ----------
    reader : str
        Function that reads the data set, as "module:function".
    about, licence : str
        What the data set contains, and its licence.
    train_rows, test_rows, classes : int
        Number of training rows, test rows and classes.
    files : tuple of str
        Names of its files; empty if the data comes with the package.
    suffixes : tuple of str
        Suffixes that each file may have, such as ".gz".
    archive_folder : str
        Folder of the files in the published archive; empty if there is none.
    instructions : str
        How to get files that fedul cannot download; empty if it can.
    """

    reader: str
    about: str
    licence: str
    train_rows: int
    test_rows: int
    classes: int
    files: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ("",)
    archive_folder: str = ""
    instructions: str = ""

    @property
    def embedded(self) -> bool:
        """Whether the data comes with the package."""
        return not self.files

    @property
    def rows(self) -> int:
        """Number of training and test rows together."""
        return self.train_rows + self.test_rows


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Research data before it is partitioned.

    Parameters
    ----------
    train_inputs, test_inputs : Tensor of shape (N, ...)
        Rows, often uint8.
    train_labels, test_labels : ndarray of shape (N,)
        Classes 0..K-1.
    classes : sequence of str
        Names of the K classes.
    scaling : Scaling
        Map from stored inputs to network inputs.
    """

    train_inputs: Tensor
    train_labels: Labels
    test_inputs: Tensor
    test_labels: Labels
    classes: Sequence[str]
    scaling: Scaling


def user_cache() -> Path:
    """Return the default folder for downloaded data."""
    import pooch

    return Path(pooch.os_cache("fedul"))


def expand_folder(text: str) -> Path:
    """Return the path of a folder with ~ expanded, because a shell does not expand `--data-dir=~/data`."""
    return Path(os.path.expanduser(text))


def search_folders(data_dir: str | None) -> list[Path]:
    """Return the folders to search: `--data-dir` if given, otherwise $FEDUL_DATA and the user's cache."""
    if data_dir is not None:
        return [expand_folder(data_dir)]
    shared = os.environ.get("FEDUL_DATA")
    return ([expand_folder(shared)] if shared else []) + [user_cache()]


def find_data_folder(name: str, source: Source, data_dir: str | None) -> Path | None:
    """Return the first folder that holds all files of a data set; None if there is none.

    The files are in `FOLDER/name/` or `FOLDER/`, or in the folder of the published archive below one of these.
    """
    folders = _candidate_folders(name, source, data_dir)
    return next((folder for folder in folders if not _missing_files(folder, source)), None)


def missing_files_error(name: str, source: Source, data_dir: str | None) -> InputError:
    """Return an error that names the missing files of a data set, and says how to get them."""
    searched = ", ".join(map(str, search_folders(data_dir)))
    if source.instructions:
        return InputError(
            f"{name} is not on this machine (looked in {searched}) and cannot be fetched; {source.instructions}, "
            "to which --data-dir or FEDUL_DATA points."
        )
    for folder in _candidate_folders(name, source, data_dir):
        missing = _missing_files(folder, source)
        if len(missing) < len(source.files):
            return InputError(
                f"{name} is incomplete: {folder} lacks {', '.join(missing)}; "
                f"fetch it again with 'fedul datasets fetch {name}'."
            )
    return InputError(
        f"{name} is not on this machine (looked in {searched}); fetch it with 'fedul datasets fetch {name}', "
        "or point --data-dir or FEDUL_DATA to it."
    )


def _candidate_folders(name: str, source: Source, data_dir: str | None) -> list[Path]:
    outer = [path for folder in search_folders(data_dir) for path in (folder / name, folder)]
    if not source.archive_folder:
        return outer
    return [path for folder in outer for path in (folder / source.archive_folder, folder)]


def _missing_files(folder: Path, source: Source) -> list[str]:
    # Without permission to enter the folder, os.path.isfile returns False, while Path.is_file raises.
    return [file for file in source.files if not any(os.path.isfile(folder / (file + end)) for end in source.suffixes)]
