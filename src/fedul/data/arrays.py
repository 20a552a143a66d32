"""Arrays of .npz files, from which nothing is unpickled, and checks of labelled images of 28 x 28 pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.core import Labels
from fedul.errors import InputError

Arrays = Mapping[str, NDArray[Any]]


def read_npz(path: Path, names: Sequence[str], remedy: str, *, optional: Sequence[str] = ()) -> Arrays:
    """Return the arrays of these names; an InputError says that the file is damaged or lacks one."""
    try:
        with path.open("rb") as file:  # opened here, because NumPy leaves a file open that it cannot read
            stored = np.load(file, allow_pickle=False)
            held = [] if isinstance(stored, np.ndarray) else stored.files
            if missing := [name for name in names if name not in held]:
                raise InputError(f"{path}: holds no array called {', '.join(missing)}; {remedy}.")
            return {name: stored[name] for name in (*names, *optional) if name in held}
    except InputError:
        raise
    except Exception as problem:  # zip, zlib, tokenize and NumPy each have different errors for a damaged file
        raise InputError(f"{path}: not a readable .npz file of numbers ({problem}); {remedy}.") from None


def labelled_images(
    images: tuple[Path, NDArray[Any]], labels: tuple[Path, NDArray[Any]], classes: int, remedy: str
) -> tuple[torch.Tensor, Labels]:
    """Return images as (n, 1, 28, 28) bytes, and their labels.

    Parameters
    ----------
    images : tuple of Path and ndarray
        The file of the images, for messages, and the images (n, 28, 28).
    labels : tuple of Path and ndarray
        The file of the labels, and the labels (n,).
    classes : int
        Number of classes.
    remedy : str
        What to do if the arrays hold something else, for messages.
    """
    (path, pixels), (labels_path, numbers) = images, labels
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (28, 28) or not len(pixels):
        raise InputError(
            f"{path}: expected images of 28 x 28 bytes, found {pixels.dtype} of shape {pixels.shape}; {remedy}."
        )
    if numbers.shape != (len(pixels),) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(
            f"{labels_path}: expected a label for each of {len(pixels)} images, a whole number, found "
            f"{numbers.dtype} of shape {numbers.shape}; {remedy}."
        )
    if numbers.min() < 0 or numbers.max() >= classes:
        wrong = numbers.min() if numbers.min() < 0 else numbers.max()
        raise InputError(f"{labels_path}: labels must be in 0..{classes - 1}, found {wrong}; {remedy}.")
    return torch.from_numpy(pixels).unsqueeze(1), numbers.astype(np.int64)
