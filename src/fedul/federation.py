"""What the clients own and what is agreed between them; and, apart from it, the truth that research data has.

`UnlabeledSets` has no field that could hold a label. Labels of research data live in a `Truth`, which only the
evaluation and the method called `supervised` accept. Labelled rows that a user does have are sets with one-hot priors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedul import priors as prior_tools
from fedul.errors import InputError
from fedul.priors import Matrix
from fedul.randomness import numpy_generator

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Scaling:
    """How stored inputs become what the network sees: x * scale + shift (e.g. bytes to 0..1)."""

    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, inputs: Tensor) -> Tensor:
        scaled = inputs.to(float_type(inputs)) * self.scale
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
    inputs: Tensor  # (N, ...): may be shared with other clients, since rows are indexed, never copied
    train: Rows
    held_out: Rows
    priors: Matrix  # (M, K)

    def __post_init__(self) -> None:
        where = f"client '{self.name}'"
        if not self.name:
            raise InputError("a client has an empty name; give every client a name of its own.")
        object.__setattr__(self, "priors", prior_tools.validate(self.priors, where=f"class priors of {where}"))
        sets = len(self.priors)
        for rows in (self.train, self.held_out):
            if len(rows.index) != len(rows.sets):
                raise InputError(
                    f"{where}: {len(rows.index)} rows but {len(rows.sets)} set numbers; give one for each row."
                )
            if len(rows) and (rows.index.min() < 0 or rows.index.max() >= len(self.inputs)):
                raise InputError(f"{where}: row numbers must lie in 0..{len(self.inputs) - 1}, the rows of its inputs.")
            if len(rows) and (rows.sets.min() < 0 or rows.sets.max() >= sets):
                raise InputError(
                    f"{where}: set numbers must lie in 0..{sets - 1}, one for each row of its class priors."
                )
        empty = np.flatnonzero(np.bincount(self.train.sets.numpy(), minlength=sets) == 0)
        if len(empty):
            raise InputError(f"{where}: set {empty[0] + 1} of {sets} has no rows to train on; drop it or give it rows.")

    @classmethod
    def from_arrays(
        cls,
        name: str,
        inputs: ArrayLike | Tensor,
        sets: ArrayLike | Tensor,
        priors: ArrayLike,
        *,
        held_out: float = 0.2,
        seed: int = 0,
    ) -> UnlabeledSets:
        """A client from its rows, the set number of each row and the class priors of each set.

        A share of every set (but never its only row) is held out, so that models can be chosen without labels.
        """
        if not 0 <= held_out < 1:
            raise InputError(f"client '{name}': held_out is a share in 0..1 (below 1), got {held_out:g}.")
        x, numbers = _rows_as_tensor(inputs, name), _set_numbers(sets, name)
        if len(x) != len(numbers):
            raise InputError(f"client '{name}': {len(x)} rows but {len(numbers)} set numbers; give one for each row.")
        generator = numpy_generator(seed, "held-out", name)
        kept, apart = [], []
        for m in np.unique(numbers):
            order = generator.permutation(np.flatnonzero(numbers == m))
            count = min(round(held_out * len(order)), len(order) - 1)
            apart.append(order[:count])
            kept.append(order[count:])
        parts = [np.sort(np.concatenate(p)) if p else np.zeros(0, np.int64) for p in (kept, apart)]
        train, held = (Rows(torch.from_numpy(p), torch.from_numpy(numbers[p])) for p in parts)
        return cls(name, x, train, held, prior_tools.validate(priors, where=f"class priors of client '{name}'"))

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


def _rows_as_tensor(inputs: ArrayLike | Tensor, name: str) -> Tensor:
    try:
        x = inputs if isinstance(inputs, Tensor) else torch.as_tensor(np.asarray(inputs))
    except (TypeError, ValueError):
        x = torch.empty(0)
    if x.ndim < 2:
        raise InputError(f"client '{name}': its rows are not a table of numbers; give an array (rows, ...).")
    finite = x.flatten(1).isfinite().all(dim=1)
    if not finite.all():
        row = int(finite.int().argmin())
        raise InputError(f"client '{name}': row {row + 1} has a value that is missing or infinite; fill it or drop it.")
    return x


def _set_numbers(sets: ArrayLike | Tensor, name: str) -> Labels:
    numbers = np.asarray(sets)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"client '{name}': set numbers must be whole numbers from 0, one for each row.")
    return numbers.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients, the classes they agree on, and the class mix of the population the classifier is for."""

    clients: Sequence[UnlabeledSets]
    classes: Sequence[str]
    test_prior: Matrix = None  # type: ignore[assignment]  # None means uniform
    scaling: Scaling = field(default_factory=Scaling)

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
        object.__setattr__(self, "clients", tuple(self.clients))
        object.__setattr__(self, "test_prior", prior_tools.validate_test_prior(prior, classes))
        seen: set[str] = set()
        shape = self.input_shape
        for client in self.clients:
            if client.name in seen:
                raise InputError(f"two clients are called '{client.name}'; give every client a name of its own.")
            seen.add(client.name)
            prior_tools.validate(client.priors, classes=classes, where=f"class priors of client '{client.name}'")
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
                raw = client.inputs.contiguous().reshape(-1).view(torch.uint8)
                hashed[shared] = hashlib.sha256(raw.numpy().data).digest()
            digest.update(repr((client.name, client.inputs.shape, client.inputs.dtype)).encode())
            digest.update(hashed[shared])
            for rows in (client.train, client.held_out):
                digest.update(repr(len(rows)).encode())
                digest.update(rows.index.numpy().data)
                digest.update(rows.sets.numpy().data)
            digest.update(np.ascontiguousarray(client.priors).data)
        return digest.hexdigest()


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
    weak = [c.name for c, p in zip(federation.clients, matrices, strict=True) if not prior_tools.diagnose(p).sufficient]
    if not weak:
        return []
    names = ", ".join(weak[:3]) + (f" and {len(weak) - 3} more" if len(weak) > 3 else "")
    return [f"by itself {names} could not determine the classifier (rank below {classes}); all clients together can."]


@dataclass(frozen=True, eq=False)
class Truth:
    """Labels, which exist only in research data: of a test population, and of the clients' rows."""

    test_inputs: Tensor  # (T, ...)
    test_labels: Labels  # (T,)
    test_clients: Labels  # (T,): test rows are dealt out to clients too, as the paper's tables do
    train_labels: Mapping[str, Labels]  # client name -> (n,), in the order of its training rows
    held_out_labels: Mapping[str, Labels]


@dataclass(frozen=True, eq=False)
class Study:
    """A federation made from labelled research data, with the truth kept beside it."""

    federation: Federation
    truth: Truth
    origin: Mapping[str, Any] = field(default_factory=dict)  # the options it was made with, for the record of a run

    def __post_init__(self) -> None:
        truth = self.truth
        for client in self.federation.clients:
            for rows, labels in ((client.train, truth.train_labels), (client.held_out, truth.held_out_labels)):
                found = len(labels.get(client.name, ()))
                if found != len(rows):
                    raise InputError(f"client '{client.name}': {len(rows)} rows but {found} labels; give one for each.")
