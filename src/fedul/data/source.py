"""What every source of research data returns, and how its files are found on this machine.

Nothing here imports torch when it is loaded, so that data sets can be listed and fetched quickly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedul.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from fedul.federation import Scaling
    from fedul.truth import Labels


def _unscaled() -> Scaling:
    from fedul.federation import Scaling

    return Scaling()


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Research data before it is dealt out: training and test rows with labels 0..K-1."""

    train_inputs: Tensor  # (N, ...), often uint8
    train_labels: Labels  # (N,)
    test_inputs: Tensor
    test_labels: Labels
    classes: Sequence[str]
    scaling: Scaling = field(default_factory=_unscaled)


def user_cache() -> Path:
    """Where downloaded data is kept unless the user says otherwise."""
    import pooch

    return Path(pooch.os_cache("fedul"))


def named_folder(text: str) -> Path:
    """A folder as a person writes it: the shell leaves the ~ of `--data-dir=~/data` as it is."""
    return Path(os.path.expanduser(text))


def search_folders(data_dir: str | None) -> list[Path]:
    """Where to look for data: `--data-dir` alone if given, else FEDUL_DATA, then the user's cache."""
    if data_dir is not None:
        return [named_folder(data_dir)]
    named = os.environ.get("FEDUL_DATA")
    return ([named_folder(named)] if named else []) + [user_cache()]


def complete_folder(
    name: str,
    files: Sequence[str],
    data_dir: str | None,
    *,
    below: str = "",
    suffixes: Sequence[str] = ("",),
) -> Path | None:
    """The first folder that holds all the files, as `FOLDER/name/file` or `FOLDER/file`; None if none does.

    They may also be in a folder `below`, which the published archive brings, and have any of the `suffixes`.
    """
    for candidate in _candidates(name, data_dir, below):
        if not _missing(candidate, files, suffixes):
            return candidate
    return None


def find_folder(
    name: str,
    files: Sequence[str],
    data_dir: str | None,
    *,
    below: str = "",
    suffixes: Sequence[str] = ("",),
) -> Path:
    """The folder that `complete_folder` finds; else an InputError that says what is missing where."""
    folder = complete_folder(name, files, data_dir, below=below, suffixes=suffixes)
    if folder is not None:
        return folder
    for candidate in _candidates(name, data_dir, below):
        missing = _missing(candidate, files, suffixes)
        if len(missing) < len(files):
            raise InputError(
                f"{name} is incomplete: {candidate} lacks {', '.join(missing)}; "
                f"fetch it again with 'fedul datasets fetch {name}'."
            )
    looked = ", ".join(str(folder) for folder in search_folders(data_dir))
    raise InputError(
        f"{name} is not on this machine (looked in {looked}); fetch it with 'fedul datasets fetch {name}', "
        "or point --data-dir or FEDUL_DATA to it."
    )


def _candidates(name: str, data_dir: str | None, below: str) -> list[Path]:
    outer = [path for folder in search_folders(data_dir) for path in (folder / name, folder)]
    return [path for folder in outer for path in ((folder / below, folder) if below else (folder,))]


def _missing(folder: Path, files: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    # os.path.isfile says no, where Path.is_file raises, if the folder may not be entered.
    return [file for file in files if not any(os.path.isfile(folder / (file + end)) for end in suffixes)]
