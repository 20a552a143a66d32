"""Inputs as users have them: tensors over their own memory, which may be a file of many gigabytes mapped into it.

So nothing here copies, converts or looks at more than a block of rows at a time. Beside them, the numbers that name
rows and sets.
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

BLOCK = 2**20
"""Values that are looked at in one go."""

AT_ONCE = 256
"""Rows that a network predicts in one go; with more, what it makes of images leaves the cache."""


def table(inputs: ArrayLike | Tensor, name: str) -> Tensor:
    """The inputs of a client as a tensor (n, ...) over the same memory."""
    try:
        x = tensor_over(inputs)
    except (TypeError, ValueError):
        x = torch.empty(0)
    if x.ndim < 2 or x.is_complex():
        raise InputError(f"client '{name}': its rows are not a table of numbers; give an array (rows, ...).")
    return x


def tensor_over(inputs: ArrayLike | Tensor) -> Tensor:
    """The inputs as a tensor over the same memory; TypeError or ValueError if they are not numbers in a grid.

    >>> x = np.zeros((2, 3), np.uint8)
    >>> x.flags.writeable = False  # as np.load(..., mmap_mode="r") makes them
    >>> tensor_over(x).data_ptr() == x.ctypes.data
    True
    """
    if isinstance(inputs, Tensor):
        return inputs
    array = np.asarray(inputs)
    if array.flags.writeable:
        return torch.as_tensor(array)
    with warnings.catch_warnings():
        # torch knows no read-only tensors and warns of writing to one; inputs are only ever read.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)


def memory_of(inputs: Tensor) -> tuple[Any, ...]:
    """A key that two tensors share if they are the same memory read in the same way, whatever objects they are."""
    return inputs.device, inputs.dtype, inputs.data_ptr(), inputs.shape, inputs.stride()


def first_not_finite(inputs: Tensor, rows: Index | None = None) -> int | None:
    """The first of the rows (of all, if none are named) that holds a value which is missing or infinite."""
    if not (inputs.is_floating_point() or inputs.is_complex()):
        return None
    for block in _blocks(inputs, len(inputs) if rows is None else len(rows)):
        chosen = inputs[block] if rows is None else inputs[torch.from_numpy(rows[block])]
        # A sum is finite only where all values are, and makes no mask; one that overflows is looked at again.
        if math.isfinite(abs(chosen.sum().item())):
            continue
        finite = chosen.isfinite().flatten(1).all(dim=1)
        if not finite.all():
            at = block.start + int(finite.int().argmin())
            return at if rows is None else int(rows[at])
    return None


def digest_of(inputs: Tensor) -> bytes:
    """SHA-256 of the values' bytes, row after row, however they are laid out in memory."""
    digest = hashlib.sha256()
    for block in _blocks(inputs, len(inputs)):
        values = inputs[block].cpu().contiguous()
        # Said once more, since torch lets a single value have any stride and then cannot view its bytes.
        flat = values.as_strided((values.numel(),), (1,))
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.digest()


def gathered(parts: Iterable[tuple[Tensor, Tensor]], size: int) -> Iterator[Tensor]:
    """Rows of many clients in their order, each given as inputs and index: so many at once, or a few less.

    With small clients a pass over each one's rows costs more than its arithmetic.

    >>> x, y = torch.arange(4.0)[:, None], torch.arange(4.0, 8.0)[:, None]
    >>> [rows.flatten().tolist() for rows in gathered([(x, torch.tensor([3, 1])), (y, torch.tensor([0, 2, 3]))], 3)]
    [[3.0, 1.0], [4.0, 6.0, 7.0]]
    """
    waiting: list[tuple[Tensor, list[Tensor]]] = []
    count = 0
    for inputs, index in parts:
        for some in (index,) if index.shape[0] <= size else torch.split(index, size):
            if waiting and (count + some.shape[0] > size or waiting[-1][0].dtype != inputs.dtype):
                yield _joined(waiting)
                waiting, count = [], 0
            if not waiting or waiting[-1][0] is not inputs:
                waiting.append((inputs, []))
            waiting[-1][1].append(some)
            count += some.shape[0]
    if count:
        yield _joined(waiting)


def _joined(parts: list[tuple[Tensor, list[Tensor]]]) -> Tensor:
    return torch.cat([inputs[torch.cat(indexes)] for inputs, indexes in parts])


def row_numbers(rows: slice | range | ArrayLike | Tensor, count: int, name: str) -> Index:
    """Some of so many rows, each named once."""
    if isinstance(rows, slice):
        rows = range(*rows.indices(count))
    try:
        numbers = np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else np.asarray(rows)
    except ValueError:  # lists of different lengths
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or not (np.issubdtype(numbers.dtype, np.integer) or not numbers.size):
        raise InputError(
            f"client '{name}': rows are a range, a slice or a list of whole numbers from 0; "
            "of a mask of true and false, give np.flatnonzero(mask)."
        )
    index = numbers.astype(np.int64)
    if not within(torch.from_numpy(index), count):
        raise beyond(f"client '{name}'", count)
    ordered = np.sort(index)
    if len(again := np.flatnonzero(ordered[1:] == ordered[:-1])):
        raise InputError(
            f"client '{name}': rows names {ordered[again[0]]} twice, and it might be trained on and held out; "
            "name each row once, or say with Rows which rows are for what."
        )
    return index


def set_numbers(sets: ArrayLike | Tensor, name: str) -> Index:
    """The number of each row's set."""
    numbers = np.asarray(sets)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"client '{name}': set numbers must be whole numbers from 0, one for each row.")
    return numbers.astype(np.int64)


def within(numbers: Tensor, count: int) -> bool:
    """Whether all are in 0..count - 1."""
    values = numbers.numpy()  # on a client's few numbers, NumPy takes a fraction of the time
    return not len(values) or bool(values.min() >= 0 and values.max() < count)


def beyond(where: str, count: int) -> InputError:
    return InputError(f"{where}: row numbers must lie in 0..{count - 1}, the rows of its inputs.")


def _blocks(inputs: Tensor, rows: int) -> Iterator[slice]:
    """Slices that cover so many rows, each of about BLOCK values."""
    size = max(1, BLOCK // max(inputs.shape[1:].numel(), 1))
    return (slice(first, min(first + size, rows)) for first in range(0, rows, size))
