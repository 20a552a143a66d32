"""Rows of one client in unlabeled sets, and the class priors of each set.

`UnlabeledSets` has no field for a label: labels of research data are in `fedul.core.truth`. Labelled rows that a user
has are sets with one-hot priors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedul._utils.display import counted
from fedul._utils.randomness import numpy_generator
from fedul.core import priors as prior_tools
from fedul.core.inputs import (
    Index,
    all_within,
    as_input_tensor,
    first_nonfinite_row,
    out_of_range_error,
    row_index,
    set_index,
)
from fedul.core.prior_scope import PriorScope
from fedul.core.priors import Matrix
from fedul.errors import InputError


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a client.

    Parameters
    ----------
    index : Tensor of shape (n,), int64
        Places of the rows in the client's inputs.
    sets : Tensor of shape (n,), int64
        Number of each row's set.
    """

    index: Tensor
    sets: Tensor

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False, repr=False)
class UnlabeledSets:
    """One client: rows in several sets, and the class priors of each set.

    Parameters
    ----------
    name : str
        Name of the client.
    inputs : Tensor of shape (N, ...)
        Inputs, which may be shared with other clients or mapped from a file: rows are indexed, never copied.
    train, held_out : Rows
        Rows to train on, and rows to select models with.
    priors : ndarray of shape (M, K)
        Class priors of each set.
    set_names : sequence of str, optional
        Names of the sets; by default they are numbered from 1.
    labelled_sets : sequence of int, optional
        Sets of rows whose label the user knows. Their priors are one-hot, and their rows count as labels used.
    prior_scope : PriorScope
        What the class priors speak of; by default of the population that the rows were drawn from.

    Examples
    --------
    >>> x, sets = torch.rand(6, 2), [0, 0, 0, 1, 1, 1]
    >>> north = UnlabeledSets.from_arrays("north", x, sets, [[0.9, 0.1], [0.2, 0.8]], held_out=0)
    >>> north.set_priors, north.class_mix
    (array([0.5, 0.5]), array([0.55, 0.45]))
    """

    name: str
    inputs: Tensor
    train: Rows
    held_out: Rows
    priors: Matrix
    set_names: Sequence[str] = ()
    labelled_sets: Sequence[int] = ()
    prior_scope: PriorScope = field(default_factory=PriorScope)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "" if self.name is None else str(self.name))
        where = f"client '{self.name}'"
        if not self.name:
            raise InputError("a client has an empty name; give every client a unique name.")
        object.__setattr__(self, "priors", prior_tools.validate_priors(self.priors, where=f"class priors of {where}"))
        if not isinstance(self.inputs, Tensor):
            object.__setattr__(self, "inputs", as_input_tensor(self.inputs, self.name))
        sets = len(self.priors)
        object.__setattr__(self, "set_names", _set_names(self.set_names, sets, where))
        for rows in (self.train, self.held_out):
            if len(rows.index) != len(rows.sets):
                raise InputError(
                    f"{where}: {counted(len(rows.index), 'row')} but {len(rows.sets)} set numbers; give one per row."
                )
            if not all_within(rows.index, len(self.inputs)):
                raise out_of_range_error(where, len(self.inputs))
            if not all_within(rows.sets, sets):
                raise InputError(
                    f"{where}: set numbers must lie in 0..{sets - 1}, one for each row of its class priors."
                )
        counts = np.bincount(self.train.sets.numpy(), minlength=sets)
        if not counts.all():
            empty = self.set_names[int(counts.argmin())]
            raise InputError(f"{where}: set '{empty}' has no rows to train on; drop it or give it rows.")
        for number in self.labelled_sets:
            if not 0 <= number < sets or self.priors[number].max() < 1:
                raise InputError(f"{where}: labelled set {number} needs one-hot priors; give it one class.")

    def __repr__(self) -> str:
        rows = f"{counted(len(self.train), 'row')} to train on and {len(self.held_out):,} held out"
        return f"<UnlabeledSets of client '{self.name}': {counted(len(self.priors), 'set')}, {rows}>"

    @classmethod
    def from_arrays(
        cls,
        name: str,
        inputs: ArrayLike | Tensor,
        sets: ArrayLike | Tensor,
        priors: ArrayLike,
        *,
        rows: slice | range | ArrayLike | Tensor | None = None,
        held_out: float = 0.2,
        seed: int = 0,
        set_names: Sequence[str] = (),
        priors_of: str | PriorScope = PriorScope.of,
    ) -> UnlabeledSets:
        """Build a client from its rows, the set number of each row and the class priors of each set.

        Nothing is copied.

        Parameters
        ----------
        name : str
            Name of the client.
        inputs : array-like or Tensor of shape (N, ...)
            Inputs, e.g. of a mapped file: ``np.load("x.npy", mmap_mode="r")``.
        sets : array-like of shape (n,)
            Number of each row's set, from 0.
        priors : array-like of shape (M, K)
            Class priors of each set.
        rows : range, slice or array-like of int, optional
            The rows of the inputs that belong to this client; by default all.
        held_out : float, default=0.2
            Share of every set that is held out to select models without labels. The only row of a set is never held
            out.
        seed : int, default=0
            Seed of the draw of held-out rows.
        set_names : sequence of str, optional
            Names of the sets.
        priors_of : {"population", "rows", "train"} or PriorScope, default="population"
            What the class priors speak of: the population that the rows were drawn from, all rows of each set, or its
            training rows.

        Returns
        -------
        UnlabeledSets

        Examples
        --------
        >>> x = np.arange(12.0).reshape(6, 2)
        >>> priors = [[0.9, 0.1], [0.2, 0.8]]
        >>> south = UnlabeledSets.from_arrays("south", x, [0, 0, 1], priors, rows=[5, 3, 1], held_out=0)
        >>> south.train.index, south.inputs.shape
        (tensor([5, 3, 1]), torch.Size([6, 2]))
        """
        if not 0 <= held_out < 1:
            raise InputError(f"client '{name}': held_out is a share in 0..1 (below 1), got {held_out:g}.")
        x, numbers = as_input_tensor(inputs, name), set_index(sets, name)
        index = None if rows is None else row_index(rows, len(x), name)
        count = len(x) if index is None else len(index)
        if count != len(numbers):
            raise InputError(
                f"client '{name}': {counted(count, 'row')} but {len(numbers)} set numbers; give one for each row."
            )
        if (bad := first_nonfinite_row(x, index)) is not None:
            place = f"row {bad + 1}" if index is None else f"row {bad + 1} of its inputs (number {bad} from 0)"
            raise InputError(f"client '{name}': {place} has a value that is missing or infinite; fill it or drop it.")
        splits = split_held_out(numbers, held_out, numpy_generator(seed, "held-out", name))
        train, rest = (
            Rows(torch.from_numpy(at if index is None else index[at]), torch.from_numpy(numbers[at])) for at in splits
        )
        scope = PriorScope.of_value(priors_of)
        return cls(name, x, train, rest, cast(Matrix, priors), set_names, prior_scope=scope)  # validated there

    @cached_property
    def all_rows(self) -> Rows:
        """Rows to train on, followed by held-out rows."""
        train, held_out = self.train, self.held_out
        return Rows(torch.cat([train.index, held_out.index]), torch.cat([train.sets, held_out.sets]))

    @property
    def prior_rows(self) -> Rows:
        """Rows that the class priors speak of: training rows, then held-out rows if the priors speak of these too."""
        return self.train if self.prior_scope.of == "train" else self.all_rows

    def with_sets(self, numbers: Sequence[int]) -> UnlabeledSets:
        """Return the client with some of its sets only, numbered anew in the order given."""
        place = np.full(len(self.priors), -1)
        place[list(numbers)] = np.arange(len(numbers))
        places = torch.from_numpy(place)

        def select(rows: Rows) -> Rows:
            sets = places[rows.sets]
            return Rows(rows.index[sets >= 0], sets[sets >= 0])

        return replace(
            self,
            train=select(self.train),
            held_out=select(self.held_out),
            priors=self.priors[list(numbers)],
            set_names=[self.set_names[i] for i in numbers],
            labelled_sets=[int(place[i]) for i in self.labelled_sets if place[i] >= 0],
        )

    @cached_property
    def set_priors(self) -> Matrix:
        """Set priors pibar (M,): share of the training rows in each set."""
        counts = np.bincount(self.train.sets.numpy(), minlength=len(self.priors))
        shares: Matrix = counts / counts.sum()
        return shares

    @property
    def class_mix(self) -> Matrix:
        """Class mix s = Pi^T pibar (K,) of the training rows."""
        return self.set_priors @ self.priors

    @property
    def labelled_rows(self) -> int:
        """Number of training and held-out rows whose label is known."""
        return sum(int(np.isin(rows.sets.numpy(), self.labelled_sets).sum()) for rows in (self.train, self.held_out))


def pooled_class_mix(clients: Sequence[UnlabeledSets]) -> Matrix:
    """Return the class mix (K,) of the training rows of all clients."""
    rows = [np.bincount(client.train.sets.numpy(), minlength=len(client.priors)) for client in clients]
    return mix_of_sets(np.concatenate(rows), np.concatenate([client.priors for client in clients]))


def mix_of_sets(rows: Index, priors: Matrix) -> Matrix:
    """Return the class mix (K,) of sets with these numbers of rows (S,) and these class priors (S, K)."""
    mix: Matrix = rows @ priors / rows.sum()
    return mix


def _set_names(names: Sequence[str], sets: int, where: str) -> tuple[str, ...]:
    if not len(names):
        return tuple(map(str, range(1, sets + 1)))
    if isinstance(names, str) or len(names) != sets or len(set(names)) < sets:
        raise InputError(f"{where}: {sets} sets need {sets} different names.")
    return tuple(map(str, names))


def split_held_out(sets: Index, share: float, generator: np.random.Generator) -> tuple[Index, Index]:
    """Return positions to train on and to hold out, ascending: a share of every set, but never its only row.

    Parameters
    ----------
    sets : ndarray of shape (n,)
        Number of each row's set.
    share : float
        Share of every set to hold out.
    generator : numpy.random.Generator
        Source of randomness.
    """
    by_set = np.argsort(sets, kind="stable")  # all sets in one pass, however many there are
    in_order = sets[by_set]
    changes = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    train, held_out = [], []
    for first, last in pairwise([0, *changes.tolist(), len(sets)]):
        order = generator.permutation(by_set[first:last])
        count = int(held_out_count(np.array(len(order)), share))
        held_out.append(order[:count])
        train.append(order[count:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(held_out))


def held_out_count(sizes: Index, share: float) -> Index:
    """Return how many rows of sets of these sizes are held out: a share of every set, but never its only row."""
    counts: Index = np.minimum(np.rint(share * sizes).astype(np.int64), sizes - 1)
    return counts
