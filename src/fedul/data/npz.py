"""Labelled images of 28 x 28 from an .npz file that a user brings: nothing is unpickled, what is wrong is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.errors import InputError
from fedul.truth import Labels

Arrays = Mapping[str, NDArray[Any]]


def read_npz(path: Path, names: Sequence[str], remedy: str) -> Arrays:
    """The arrays of these names; a file that is cut, corrupt or lacks one is an InputError."""
    try:
        with path.open("rb") as file:  # opened here, since NumPy leaves a file open that it cannot read
            stored = np.load(file, allow_pickle=False)
            held = [] if isinstance(stored, np.ndarray) else stored.files
            if missing := [name for name in names if name not in held]:
                raise InputError(f"{path}: holds no array called {', '.join(missing)}; {remedy}.")
            return {name: stored[name] for name in names}
    except InputError:
        raise
    except Exception as problem:  # zip, zlib, tokenize and NumPy each have errors of their own for a damaged file
        raise InputError(f"{path}: not a readable .npz file of numbers ({problem}); {remedy}.") from None


def labelled_images(
    path: Path, images: NDArray[Any], labels: NDArray[Any], classes: int, remedy: str
) -> tuple[torch.Tensor, Labels]:
    """Images as (n, 1, 28, 28) bytes and their labels, if that is what the arrays hold."""
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28) or not len(images):
        raise InputError(
            f"{path}: expected bytes of shape (n, 28, 28), found {images.dtype} of shape {images.shape}; {remedy}."
        )
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            f"{path}: expected a whole number as label for each of {len(images)} images, found {labels.dtype} "
            f"of shape {labels.shape}; {remedy}."
        )
    if labels.min() < 0 or labels.max() >= classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"{path}: labels must be in 0..{classes - 1}, found {wrong}; {remedy}.")
    return torch.from_numpy(images).unsqueeze(1), labels.astype(np.int64)


def class_names(path: Path, names: NDArray[Any], classes: int, remedy: str) -> tuple[str, ...]:
    """The names of the classes, if there are as many different ones."""
    if names.shape != (classes,) or names.dtype.kind != "U" or len(set(names.tolist())) < classes:
        raise InputError(f"{path}: expected {classes} different class names; {remedy}.")
    return tuple(names.tolist())
