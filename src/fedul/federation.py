"""What the clients own, and what is agreed between them.

`UnlabeledSets` has no field that could hold a label: those of research data are in `fedul.truth`. Labelled rows that a
user does have are sets with one-hot priors.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedul import priors as prior_tools
from fedul.errors import InputError
from fedul.inputs import (
    Index,
    beyond,
    digest_of,
    first_not_finite,
    memory_of,
    row_numbers,
    set_numbers,
    table,
    within,
)
from fedul.priors import Matrix
from fedul.randomness import numpy_generator
from fedul.schema import Schema


@dataclass(frozen=True)
class Scaling:
    """How stored inputs become what the network sees: x * scale + shift (e.g. bytes to 0..1)."""

    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, inputs: Tensor) -> Tensor:
        scaled = inputs.to(float_type(inputs))
        if self.scale != 1:
            scaled = scaled * self.scale
        return scaled + self.shift if self.shift else scaled


def float_type(inputs: Tensor) -> torch.dtype:
    """The type to compute in: the inputs' own if it is a floating one."""
    return inputs.dtype if inputs.is_floating_point() else torch.float32


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a client: where they are in its inputs, and which of its sets each belongs to."""

    index: Tensor  # (n,) int64
    sets: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False)
class UnlabeledSets:
    """One client: rows in several sets, and the class priors of each set. It has no place for a label.

    >>> x, sets = torch.rand(6, 2), [0, 0, 0, 1, 1, 1]
    >>> north = UnlabeledSets.from_arrays("north", x, sets, [[0.9, 0.1], [0.2, 0.8]], held_out=0)
    >>> north.set_priors, north.class_mix
    (array([0.5, 0.5]), array([0.55, 0.45]))
    """

    name: str
    inputs: Tensor  # (N, ...): may be shared with other clients, or a mapped file: rows are indexed, never copied
    train: Rows
    held_out: Rows
    priors: Matrix  # (M, K)
    set_names: Sequence[str] = ()  # of each set; without them, sets are counted from 1

    def __post_init__(self) -> None:
        where = f"client '{self.name}'"
        if not self.name:
            raise InputError("a client has an empty name; give every client a name of its own.")
        object.__setattr__(self, "priors", prior_tools.validate(self.priors, where=f"class priors of {where}"))
        if not isinstance(self.inputs, Tensor):
            object.__setattr__(self, "inputs", table(self.inputs, self.name))
        sets = len(self.priors)
        object.__setattr__(self, "set_names", _set_names(self.set_names, sets, where))
        for rows in (self.train, self.held_out):
            if len(rows.index) != len(rows.sets):
                raise InputError(
                    f"{where}: {len(rows.index)} rows but {len(rows.sets)} set numbers; give one for each row."
                )
            if not within(rows.index, len(self.inputs)):
                raise beyond(where, len(self.inputs))
            if not within(rows.sets, sets):
                raise InputError(
                    f"{where}: set numbers must lie in 0..{sets - 1}, one for each row of its class priors."
                )
        counts = np.bincount(self.train.sets.numpy(), minlength=sets)
        if not counts.all():
            empty = self.set_names[int(counts.argmin())]
            raise InputError(f"{where}: set '{empty}' has no rows to train on; drop it or give it rows.")

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
    ) -> UnlabeledSets:
        """A client from its rows, the set number of each row and the class priors of each set.

        A share of every set (but never its only row) is held out, so that models can be chosen without labels. With
        `rows` (a range, a slice or a list of numbers from 0) the client has only these rows of inputs that may belong
        to many clients, e.g. of a file: `np.load("x.npy", mmap_mode="r")`. Nothing is copied.

        >>> x = np.arange(12.0).reshape(6, 2)
        >>> priors = [[0.9, 0.1], [0.2, 0.8]]
        >>> south = UnlabeledSets.from_arrays("south", x, [0, 0, 1], priors, rows=[5, 3, 1], held_out=0)
        >>> south.train.index, south.inputs.shape
        (tensor([5, 3, 1]), torch.Size([6, 2]))
        """
        if not 0 <= held_out < 1:
            raise InputError(f"client '{name}': held_out is a share in 0..1 (below 1), got {held_out:g}.")
        x, numbers = table(inputs, name), set_numbers(sets, name)
        index = None if rows is None else row_numbers(rows, len(x), name)
        count = len(x) if index is None else len(index)
        if count != len(numbers):
            raise InputError(f"client '{name}': {count} rows but {len(numbers)} set numbers; give one for each row.")
        if (bad := first_not_finite(x, index)) is not None:
            place = f"row {bad + 1}" if index is None else f"row {bad + 1} of its inputs (number {bad} from 0)"
            raise InputError(f"client '{name}': {place} has a value that is missing or infinite; fill it or drop it.")
        parts = held_apart(numbers, held_out, numpy_generator(seed, "held-out", name))
        train, held = (
            Rows(torch.from_numpy(at if index is None else index[at]), torch.from_numpy(numbers[at])) for at in parts
        )
        return cls(name, x, train, held, cast(Matrix, priors), set_names)  # as for all clients, checked there

    @cached_property
    def set_priors(self) -> Matrix:
        """pibar (M,): the share of the training rows that is in each set."""
        counts = np.bincount(self.train.sets.numpy(), minlength=len(self.priors))
        shares: Matrix = counts / counts.sum()
        return shares

    @property
    def class_mix(self) -> Matrix:
        """s = Pi^T pibar (K,): how common each class is among all training rows."""
        mix: Matrix = self.set_priors @ self.priors
        return mix


def pooled_mix(clients: Sequence[UnlabeledSets]) -> Matrix:
    """How common each class is (K,) among the training rows of all clients."""
    rows = np.array([len(client.train) for client in clients])
    mix: Matrix = rows @ np.stack([client.class_mix for client in clients]) / rows.sum()
    return mix


def _set_names(names: Sequence[str], sets: int, where: str) -> tuple[str, ...]:
    if not len(names):
        return tuple(map(str, range(1, sets + 1)))
    if isinstance(names, str) or len(names) != sets or len(set(names)) < sets:
        raise InputError(f"{where}: {sets} sets need as many different names.")
    return tuple(map(str, names))


def held_apart(sets: Index, share: float, generator: np.random.Generator) -> tuple[Index, Index]:
    """Positions to train on and to hold out, each in ascending order: a share of every set, but never its only row."""
    by_set = np.argsort(sets, kind="stable")  # all sets in one pass, however many there are
    in_order = sets[by_set]
    changes = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    kept, apart = [], []
    for first, last in pairwise([0, *changes.tolist(), len(sets)]):
        order = generator.permutation(by_set[first:last])
        count = min(round(share * len(order)), len(order) - 1)
        apart.append(order[:count])
        kept.append(order[count:])
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(apart))


class Agreed(Protocol):
    """What all clients agree on before the first round: a client's work depends on this and on its own rows."""

    @property
    def classes(self) -> Sequence[str]: ...

    @property
    def test_prior(self) -> Matrix: ...  # (K,): the class mix of the population the classifier is for

    @property
    def scaling(self) -> Scaling: ...

    @property
    def schema(self) -> Schema | None: ...

    @property
    def input_shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients, the classes they agree on, and the class mix of the population the classifier is for."""

    clients: Sequence[UnlabeledSets]
    classes: Sequence[str]
    test_prior: Matrix = None  # type: ignore[assignment]  # None means uniform
    scaling: Scaling = field(default_factory=Scaling)
    schema: Schema | None = None  # how tables or files became inputs; None where they were arrays from the start

    def __post_init__(self) -> None:
        classes = tuple(str(c) for c in self.classes)
        if len(classes) < 2 or len(set(classes)) < len(classes):
            raise InputError("a federation needs at least two classes, each with a name of its own.")
        if not isinstance(self.clients, Sequence) or not all(isinstance(c, UnlabeledSets) for c in self.clients):
            raise InputError("clients of a federation are a list of UnlabeledSets.")
        if not self.clients:
            raise InputError("a federation needs at least one client.")
        prior = np.full(len(classes), 1 / len(classes)) if self.test_prior is None else self.test_prior
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "clients", _sharing(self.clients))
        object.__setattr__(self, "test_prior", prior_tools.validate_test_prior(prior, classes))
        seen: set[str] = set()
        shape = self.input_shape
        for client in self.clients:
            if client.name in seen:
                raise InputError(f"two clients are called '{client.name}'; give every client a name of its own.")
            seen.add(client.name)
            if client.priors.shape[1] != len(classes):
                raise prior_tools.wrong_columns(client.priors, classes, f"class priors of client '{client.name}'")
            if tuple(client.inputs.shape[1:]) != shape:
                raise InputError(
                    f"client '{client.name}': rows of shape {tuple(client.inputs.shape[1:])}, but client "
                    f"'{self.clients[0].name}' has {shape}; all clients need the same columns or image size."
                )
        absent = np.flatnonzero(sum(client.priors.sum(axis=0) for client in self.clients) == 0)
        if len(absent):
            raise InputError(
                f"class '{classes[absent[0]]}' has prior 0 in every set; drop the class or add a set with it."
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.clients[0].inputs.shape[1:])

    def fingerprint(self) -> str:
        """A hash of everything the clients own and agree on; the order of clients does not matter."""
        digest = hashlib.sha256(repr((self.classes, self.test_prior.tolist(), self.scaling)).encode())
        hashed: dict[int, bytes] = {}  # shared inputs are read once
        for client in sorted(self.clients, key=lambda c: c.name):
            shared = id(client.inputs)
            if shared not in hashed:
                hashed[shared] = digest_of(client.inputs)
            digest.update(repr((client.name, client.inputs.shape, client.inputs.dtype)).encode())
            digest.update(hashed[shared])
            for rows in (client.train, client.held_out):
                digest.update(repr(len(rows)).encode())
                digest.update(rows.index.numpy().data)
                digest.update(rows.sets.numpy().data)
            digest.update(np.ascontiguousarray(client.priors).data)
        return digest.hexdigest()


def _sharing(clients: Sequence[UnlabeledSets]) -> tuple[UnlabeledSets, ...]:
    """The clients, those whose inputs are the same memory having the same tensor: one array, of which each names rows.

    Whoever converts, moves or hashes inputs can then tell by the tensor that it has been done.
    """
    known: dict[tuple[Any, ...], Tensor] = {}
    result = []
    for client in clients:
        shared = known.setdefault(memory_of(client.inputs), client.inputs)
        if shared is not client.inputs:
            client = copy.copy(client)  # not `replace`, which would check all its rows once more
            object.__setattr__(client, "inputs", shared)
        result.append(client)
    return tuple(result)


def identifiability(federation: Federation) -> list[str]:
    """Refuses a federation whose priors cannot determine a classifier; else warnings, a sentence each."""
    classes = len(federation.classes)
    matrices = [client.priors for client in federation.clients]
    rank = prior_tools.joint_rank(matrices)
    if rank < classes - 1:
        raise InputError(
            f"the class priors cannot tell the classes apart: all clients together determine {rank} of {classes - 1} "
            "directions; give sets with more different class mixes, or use --force (force=True) to train all the same."
        )
    alone = prior_tools.ranks(matrices)
    weak = [client.name for client, own in zip(federation.clients, alone, strict=True) if own < classes]
    if not weak:
        return []
    names = ", ".join(weak[:3]) + (f" and {len(weak) - 3} more" if len(weak) > 3 else "")
    return [f"by itself {names} could not determine the classifier (rank below {classes}); all clients together can."]
