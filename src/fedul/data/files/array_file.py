"""Rows to classify from array files: .npy, .npz, idx images, or a .csv of numbers. Nothing is unpickled."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul.data.idx import read_idx
from fedul.errors import InputError


def read_array_file(path: Path) -> NDArray[Any]:
    """Return the rows (n, ...) of a file."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder, but the classifier takes arrays; give .npy, .npz, .csv or idx images.")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; correct the path.")
    ending = path.suffix.lower()
    if ending in (".npy", ".npz"):
        rows = _read_numpy(path)
    elif ending in (".csv", ".txt"):
        rows = _read_csv(path)
    elif "idx" in path.name:
        rows = read_idx(path, remedy="give a complete idx file")
    else:
        raise InputError(f"{path}: unknown kind of file; give .npy, .npz, .csv or idx images.")
    if rows.ndim < 2 or rows.dtype.kind not in "iuf":
        raise InputError(
            f"{path}: holds {rows.dtype} of shape {rows.shape}; give a table of numbers, one row for each case."
        )
    if rows.dtype == np.uint8:
        return rows
    # Values beyond float32 become infinite, which the classifier refuses.
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.astype(np.float32, copy=False)


def _read_numpy(path: Path) -> NDArray[Any]:
    """Return the rows of a .npy file, which are read when they are used, or of an .npz file."""
    magic = np.lib.format.MAGIC_PREFIX
    try:
        with path.open("rb") as file:  # opened here, because NumPy leaves a file open that it cannot read
            if file.read(len(magic)) == magic:
                # Copy on write: torch warns about read-only memory, and writing to this does not change the file.
                return np.asarray(np.lib.format.open_memmap(path, mode="c"))
            file.seek(0)
            stored = np.load(file, allow_pickle=False)
            names = stored.files
            name = "X" if "X" in names else names[0] if len(names) == 1 else None
            if name is None:
                raise InputError(f"{path}: holds {', '.join(names) or 'nothing'}; name the rows 'X'.")
            rows: NDArray[Any] = stored[name]
            return rows
    except InputError:
        raise
    except Exception as problem:  # zip, zlib, tokenize and NumPy each have different errors for a damaged file
        raise InputError(f"{path}: not a readable NumPy file of numbers ({problem}); save the rows again.") from None


def _read_csv(path: Path) -> NDArray[Any]:
    rows: list[list[float]] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, cells in enumerate(csv.reader(file), start=1):
                if not cells:
                    continue
                try:
                    rows.append([float(cell) for cell in cells])
                except ValueError:
                    if number > 1:  # the first line may be a header
                        raise InputError(
                            f"{path}, line {number}: a cell is not a number; correct it, or leave out the header."
                        ) from None
                if rows and len(rows[-1]) != len(rows[0]):
                    raise InputError(f"{path}, line {number}: {len(rows[-1])} cells, the first row has {len(rows[0])}.")
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{path}: not a readable CSV file ({problem}); save it as CSV in UTF-8.") from None
    if not rows:
        raise InputError(f"{path}: holds no rows.")
    return np.array(rows)
