"""Inputs as users have them, and the numbers of rows and sets.

Inputs are tensors over the user's memory, which may be a mapped file of many gigabytes. So nothing here copies,
converts or reads more than a block of rows at a time.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedul.errors import InputError

Index = NDArray[np.int64]

BLOCK_VALUES = 2**20
"""Number of values in a block."""

PREDICT_BATCH = 256
"""Rows that a network predicts at a time; with more, the activations of image networks do not fit the cache."""


def as_input_tensor(inputs: ArrayLike | Tensor, name: str) -> Tensor:
    """Return the inputs of a client as a tensor (n, ...) over the same memory; InputError if they are not numbers."""
    try:
        x = tensor_view(inputs)
    except (TypeError, ValueError):
        x = torch.empty(0)
    if x.ndim < 2 or x.is_complex():
        raise InputError(f"client '{name}': its rows are not a table of numbers; give an array (rows, ...).")
    if not x.shape[1:].numel():
        raise InputError(
            f"client '{name}': its rows have no values (shape {tuple(x.shape)}); give at least one column."
        )
    return x


def tensor_view(inputs: ArrayLike | Tensor) -> Tensor:
    """Return inputs as a tensor over the same memory; TypeError or ValueError if they are not an array of numbers.

    Examples
    --------
    >>> x = np.zeros((2, 3), np.uint8)
    >>> x.flags.writeable = False  # as np.load(..., mmap_mode="r") makes them
    >>> tensor_view(x).data_ptr() == x.ctypes.data
    True
    """
    if isinstance(inputs, Tensor):
        return inputs
    array = np.asarray(inputs)
    if array.flags.writeable:
        return torch.as_tensor(array)
    with warnings.catch_warnings():
        # torch has no read-only tensors and warns; inputs are never written.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)


def memory_key(inputs: Tensor) -> tuple[Any, ...]:
    """Return a key that is equal for tensors that view the same memory in the same way."""
    return inputs.device, inputs.dtype, inputs.data_ptr(), inputs.shape, inputs.stride()


def first_nonfinite_row(inputs: Tensor, rows: Index | None = None) -> int | None:
    """Return the first row (of `rows`, by default of all) with a missing or infinite value; None if there is none."""
    if not (inputs.is_floating_point() or inputs.is_complex()):
        return None
    for block in _blocks(inputs, len(inputs) if rows is None else len(rows)):
        chosen = inputs[block] if rows is None else inputs[torch.from_numpy(rows[block])]
        # A sum is finite only if all values are, and needs no mask; a sum that overflows is checked again.
        if math.isfinite(abs(chosen.sum().item())):
            continue
        finite = chosen.isfinite().flatten(1).all(dim=1)
        if not finite.all():
            at = block.start + int(finite.int().argmin())
            return at if rows is None else int(rows[at])
    return None


def inputs_digest(inputs: Tensor) -> bytes:
    """Return the SHA-256 of the values' bytes, row by row, independent of the memory layout."""
    digest = hashlib.sha256()
    for block in _blocks(inputs, len(inputs)):
        values = inputs[block].cpu().contiguous()
        # Explicit strides, because torch lets a single value have any stride and then cannot view its bytes.
        flat = values.as_strided((values.numel(),), (1,))
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.digest()


def gather_rows(parts: Iterable[tuple[Tensor, Tensor]], size: int) -> Iterator[Tensor]:
    """Yield rows of many clients in order, in blocks of at most `size` rows.

    For small clients, one forward pass per client costs more than its arithmetic.

    Parameters
    ----------
    parts : iterable of (Tensor, Tensor)
        Inputs and row numbers of each client.
    size : int
        Largest number of rows in a block.

    Examples
    --------
    >>> x, y = torch.arange(4.0)[:, None], torch.arange(4.0, 8.0)[:, None]
    >>> [rows.flatten().tolist() for rows in gather_rows([(x, torch.tensor([3, 1])), (y, torch.tensor([0, 2, 3]))], 3)]
    [[3.0, 1.0], [4.0, 6.0, 7.0]]
    """
    waiting: list[tuple[Tensor, list[Tensor]]] = []
    count = 0
    for inputs, index in parts:
        for some in (index,) if index.shape[0] <= size else torch.split(index, size):
            if waiting and (count + some.shape[0] > size or waiting[-1][0].dtype != inputs.dtype):
                yield _concatenate(waiting)
                waiting, count = [], 0
            if not waiting or waiting[-1][0] is not inputs:
                waiting.append((inputs, []))
            waiting[-1][1].append(some)
            count += some.shape[0]
    if count:
        yield _concatenate(waiting)


def _concatenate(parts: list[tuple[Tensor, list[Tensor]]]) -> Tensor:
    return torch.cat([inputs[torch.cat(indexes)] for inputs, indexes in parts])


def row_index(rows: slice | range | ArrayLike | Tensor, count: int, name: str) -> Index:
    """Return row numbers as an array; InputError if they are not different numbers below `count`."""
    if isinstance(rows, slice):
        rows = range(*rows.indices(count))
    try:
        numbers = np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else _on_cpu(rows)
    except ValueError:  # lists of different lengths
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or not (np.issubdtype(numbers.dtype, np.integer) or not numbers.size):
        raise InputError(
            f"client '{name}': rows are a range, a slice or a list of whole numbers from 0; "
            "of a mask of true and false, give np.flatnonzero(mask)."
        )
    index = numbers.astype(np.int64)
    if not all_within(torch.from_numpy(index), count):
        raise out_of_range_error(f"client '{name}'", count)
    ordered = np.sort(index)
    if len(again := np.flatnonzero(ordered[1:] == ordered[:-1])):
        raise InputError(
            f"client '{name}': rows contains {ordered[again[0]]} twice, so it might be both trained on and held out; "
            "give each row once, or use Rows to say which rows are for what."
        )
    return index


def set_index(sets: ArrayLike | Tensor, name: str) -> Index:
    """Return the number of each row's set; InputError if it is not a whole number per row."""
    numbers = _on_cpu(sets)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"client '{name}': set numbers must be whole numbers from 0, one for each row.")
    return numbers.astype(np.int64)


def _on_cpu(numbers: ArrayLike | Tensor) -> NDArray[Any]:
    return np.asarray(numbers.cpu() if isinstance(numbers, Tensor) else numbers)


def all_within(numbers: Tensor, count: int) -> bool:
    """Return whether all numbers are in 0..count - 1."""
    values = numbers.numpy()  # NumPy is much faster on few numbers
    return not len(values) or bool(values.min() >= 0 and values.max() < count)


def out_of_range_error(where: str, count: int) -> InputError:
    """Return an error for row numbers outside the inputs."""
    return InputError(f"{where}: row numbers must lie in 0..{count - 1}, the rows of its inputs.")


def _blocks(inputs: Tensor, rows: int) -> Iterator[slice]:
    """Return slices that cover this many rows, each of about BLOCK_VALUES values."""
    size = max(1, BLOCK_VALUES // max(inputs.shape[1:].numel(), 1))
    return (slice(first, min(first + size, rows)) for first in range(0, rows, size))
