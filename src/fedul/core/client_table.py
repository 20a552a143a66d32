"""Very many clients as columns: a client is made when it is asked for.

A million clients as objects take 12 kB each. As columns they take the numbers of their rows, sets and class priors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedul._utils.display import counted
from fedul._utils.randomness import numpy_generator
from fedul.core.clients import Move
from fedul.core.inputs import Index, as_input_tensor, first_nonfinite_row, inputs_digest
from fedul.core.prior_scope import PriorScope
from fedul.core.priors import Matrix, validate_priors
from fedul.core.unlabeled_sets import Rows, UnlabeledSets, held_out_count, mix_of_sets
from fedul.errors import InputError

DIGEST_CLIENTS = 2**14
"""Clients whose bytes are hashed in one operation."""


@dataclass(frozen=True, eq=False)
class ClientTable(Sequence[UnlabeledSets]):
    """Clients that share their inputs, as columns. `from_arrays` builds and checks it.

    Parameters
    ----------
    names : sequence of str
        Name of each client.
    inputs : Tensor of shape (N, ...)
        Inputs of all clients.
    train, held_out : Rows
        Rows of all clients, one client after another; set numbers are those of the client.
    train_starts, held_out_starts, set_starts : ndarray of shape (C + 1,)
        Where the rows and the sets of each client start.
    stacked_priors : ndarray of shape (S, K)
        Class priors of all sets.
    prior_scope : PriorScope
        What the class priors speak of.
    """

    names: Sequence[str]
    inputs: Tensor
    train: Rows
    held_out: Rows
    train_starts: Index
    held_out_starts: Index
    set_starts: Index
    stacked_priors: Matrix
    prior_scope: PriorScope = field(default_factory=PriorScope)

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> UnlabeledSets: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[UnlabeledSets]: ...
    def __getitem__(self, at: int | slice) -> UnlabeledSets | Sequence[UnlabeledSets]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        sets = slice(self.set_starts[at], self.set_starts[at + 1])
        client = object.__new__(UnlabeledSets)  # what the constructor would check has been checked for all clients
        client.__dict__.update(
            name=self.names[at],
            inputs=self.inputs,
            train=_part(self.train, self.train_starts, at),
            held_out=_part(self.held_out, self.held_out_starts, at),
            priors=self.stacked_priors[sets],
            set_names=tuple(map(str, range(1, 1 + sets.stop - sets.start))),
            labelled_sets=(),
            prior_scope=self.prior_scope,
        )
        return client

    @property
    def sources(self) -> Sequence[Tensor]:
        return [self.inputs]

    @property
    def train_rows(self) -> Index:
        return np.diff(self.train_starts)

    @property
    def held_out_rows(self) -> Index:
        return np.diff(self.held_out_starts)

    @property
    def priors(self) -> Sequence[Matrix]:
        return _Slices(self.stacked_priors, self.set_starts)

    @property
    def set_rows(self) -> Index:
        first = np.repeat(self.set_starts[:-1], self.train_rows)
        return np.bincount(first + self.train.sets.numpy(), minlength=len(self.stacked_priors))

    @property
    def class_mix(self) -> Matrix:
        return mix_of_sets(self.set_rows, self.stacked_priors)

    @property
    def labelled_rows(self) -> int:
        return 0

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    def named(self, name: str) -> UnlabeledSets:
        return self[self._places[name]]

    def moved(self, move: Move) -> ClientTable:
        inputs = move(self.inputs)
        return self if inputs is self.inputs else replace(self, inputs=inputs)

    def with_priors(self, priors: Matrix, noise: float) -> ClientTable:
        return replace(self, stacked_priors=priors, prior_scope=replace(self.prior_scope, noise=noise))

    def digest_parts(self) -> Iterator[bytes]:
        kind, inputs = f", {self.inputs.shape!r}, {self.inputs.dtype!r})".encode(), inputs_digest(self.inputs)
        scope = b"" if self.prior_scope == PriorScope() else repr(self.prior_scope).encode()
        columns = [
            (_bytes_of(column.numpy()), 8, starts.tolist())
            for rows, starts in ((self.train, self.train_starts), (self.held_out, self.held_out_starts))
            for column in (rows.index, rows.sets)
        ]
        width, sets = 8 * self.stacked_priors.shape[1], self.set_starts.tolist()
        priors = _bytes_of(self.stacked_priors)
        order = sorted(range(len(self)), key=self.names.__getitem__)
        for first in range(0, len(order), DIGEST_CLIENTS):
            parts: list[bytes | memoryview] = []
            for c in order[first : first + DIGEST_CLIENTS]:
                parts += (b"(" + repr(self.names[c]).encode() + kind, inputs)
                for number, (column, size, starts) in enumerate(columns):
                    if number % 2 == 0:
                        parts.append(b"%d" % (starts[c + 1] - starts[c]))
                    parts.append(column[size * starts[c] : size * starts[c + 1]])
                parts += (priors[width * sets[c] : width * sets[c + 1]], scope)
            yield b"".join(parts)

    @classmethod
    def from_arrays(
        cls,
        inputs: ArrayLike | Tensor,
        sets: ArrayLike | Tensor,
        priors: ArrayLike,
        clients: ArrayLike,
        *,
        held_out: float = 0.2,
        seed: int = 0,
        priors_of: str | PriorScope = PriorScope.of,
    ) -> ClientTable:
        """Build the clients as `UnlabeledSets.from_arrays` would one by one; see `Federation.from_arrays`."""
        if not 0 <= held_out < 1:
            raise InputError(f"held_out is a share in 0..1 (below 1), got {held_out:g}.")
        names, place, set_starts = _group_sets(np.asarray(clients))
        x, matrix = as_input_tensor(inputs, names[0]), _validated(priors, names, place, set_starts)
        try:
            numbers = np.asarray(sets)
        except ValueError:  # lists of different lengths
            numbers = np.empty(0)
        if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer) or len(numbers) != len(x):
            raise InputError(f"sets must be whole numbers from 0, one for each of {counted(len(x), 'row')}.")
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(matrix)):
            raise InputError(f"sets must lie in 0..{len(matrix) - 1}, one for each row of the class priors.")
        at = place[numbers]  # (N,), numbered client by client
        client_of = np.repeat(np.arange(len(names)), np.diff(set_starts))  # (S,)
        sizes = np.bincount(at, minlength=len(matrix))
        if not sizes.all():
            empty = int(sizes.argmin())
            number = int(np.flatnonzero(place == empty)[0])
            raise InputError(
                f"client '{names[client_of[empty]]}': set {number} (numbers start from 0) has no rows to train on; "
                "drop it or give it rows."
            )
        if (bad := first_nonfinite_row(x)) is not None:
            raise InputError(
                f"client '{names[client_of[at[bad]]]}': row {bad + 1} of its inputs (number {bad} from 0) has a value "
                "that is missing or infinite; fill it or drop it."
            )
        is_held_out = _draw_held_out(at, sizes, names, set_starts, held_out, seed)
        owner = client_of[at]
        local = at - set_starts[owner]
        del at
        order = np.argsort(owner, kind="stable")
        chosen = is_held_out[order]
        rows, starts = [], []
        for places, taken in ((order[~chosen], ~is_held_out), (order[chosen], is_held_out)):
            rows.append(Rows(torch.from_numpy(places), torch.from_numpy(local[places])))
            starts.append(np.append(0, np.bincount(owner[taken], minlength=len(names)).cumsum()))
        scope = PriorScope.of_value(priors_of)
        return cls(names, x, rows[0], rows[1], starts[0], starts[1], set_starts, matrix, scope)


def _group_sets(clients: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> tuple[list[str], Index, Index]:
    """Return client names, the place of every set if sets are ordered by client, and each client's first place."""
    if clients.ndim != 1 or not len(clients):
        raise InputError("clients is a list with the client of every set, one for each row of the class priors.")
    if clients.dtype.kind in "fO":  # others have no missing values
        missing = next((i for i, name in enumerate(clients.tolist()) if name is None or name != name), None)
        if missing is not None:
            raise InputError(f"clients: set {missing} (numbers start from 0) has no client; give every set its client.")
    values, owner = np.unique(clients, return_inverse=True)
    names = [str(value) for value in values.tolist()]
    if not all(names):
        raise InputError("a client has an empty name; give every client a unique name.")
    place = np.empty(len(clients), np.int64)
    place[np.argsort(owner, kind="stable")] = np.arange(len(clients))
    return names, place, np.append(0, np.bincount(owner).cumsum())


def _validated(priors: ArrayLike, names: Sequence[str], place: Index, set_starts: Index) -> Matrix:
    """Return the class priors of all sets, ordered by client; the error names the client."""
    try:
        matrix = np.asarray(priors, np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.ndim != 2 or len(matrix) != len(place):
        raise InputError(
            f"class priors: give one row for each of {counted(len(place), 'set')} and one column per class."
        )
    ordered = np.empty_like(matrix)
    ordered[place] = matrix
    try:
        return validate_priors(ordered)
    except InputError:
        for name, (first, last) in zip(names, pairwise(set_starts.tolist()), strict=True):
            validate_priors(ordered[first:last], where=f"class priors of client '{name}'")
        raise


def _draw_held_out(
    at: Index, sizes: Index, names: Sequence[str], set_starts: Index, share: float, seed: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which rows (N,) are held out, drawn as `split_held_out` draws them for every client."""
    is_held_out = np.zeros(len(at), np.bool_)
    counts = held_out_count(sizes, share)
    if not counts.any():
        return is_held_out
    by_set, ends, wanted = np.argsort(at, kind="stable"), [0, *sizes.cumsum().tolist()], counts.tolist()
    for name, first, last in zip(names, set_starts[:-1].tolist(), set_starts[1:].tolist(), strict=True):
        generator = numpy_generator(seed, "held-out", name)
        for s in range(first, last):
            is_held_out[generator.permutation(by_set[ends[s] : ends[s + 1]])[: wanted[s]]] = True
    return is_held_out


def _bytes_of(values: np.ndarray[Any, np.dtype[Any]]) -> memoryview:
    """Return the bytes of an array, without a copy."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1).data


def _part(rows: Rows, starts: Index, at: int) -> Rows:
    first, last = int(starts[at]), int(starts[at + 1])
    return Rows(rows.index[first:last], rows.sets[first:last])


@dataclass(frozen=True, eq=False)
class _Slices(Sequence[Matrix]):
    """Slices of a matrix, by the places where they start."""

    values: Matrix
    starts: Index

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, at: int) -> Matrix: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Matrix]: ...
    def __getitem__(self, at: int | slice) -> Matrix | Sequence[Matrix]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        return self.values[self.starts[at] : self.starts[at + 1]]
