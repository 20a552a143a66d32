"""Federations, studies, networks, classifiers and updates for tests.

Random values follow from names and seeds, so every call gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

import fedul
from fedul.classifier import Classifier
from fedul.core import Federation, Labels, Matrix, Rows, Scaling, Study, Truth, UnlabeledSets, Update, Weights
from fedul.core.unlabeled_sets import split_held_out
from fedul.models import build

from .worlds import random_priors, random_shares

CLASSES = ("cat", "dog", "owl")
TRAINED_PRIOR = np.array([0.2, 0.3, 0.5])
"""Prior of `make_classifier`."""
PRIORS = ((0.8, 0.1, 0.1), (0.1, 0.8, 0.1), (0.1, 0.1, 0.8))
"""Three sets that tell the three classes apart."""
NAMES = ("north", "south", "east", "west", "centre")
CENTRES = np.array([[1.5, 0.0], [0.0, 1.5], [-1.5, -1.0]])
"""Mean of the rows of each class in Gaussian studies."""
IMAGE = (1, 6, 5)
"""Shape of the small images of random studies."""


def make_rows(index: ArrayLike = (), sets: ArrayLike = ()) -> Rows:
    """Return row numbers with their set numbers."""
    return Rows(torch.as_tensor(index, dtype=torch.int64), torch.as_tensor(sets, dtype=torch.int64))


def set_numbers(sets: int, rows: int | Sequence[int]) -> Labels:
    """Return the set of every row; `rows` is the size of each set, or a sequence with one size per set."""
    return np.repeat(np.arange(sets), rows)


def make_client(
    name: str = "north", priors: ArrayLike = PRIORS, rows: int | Sequence[int] = 4, **changes: Any
) -> UnlabeledSets:
    """Return a client with two random columns and, unless changed, no held-out rows.

    Parameters
    ----------
    rows : int or sequence of int
        Size of each set, or one size per set.
    **changes
        Arguments of `UnlabeledSets.from_arrays` that replace the usual ones.
    """
    sets = set_numbers(len(np.asarray(priors, object)), rows)
    inputs = _generator(name).normal(size=(len(sets), 2))
    values = {"inputs": inputs, "sets": sets, "priors": priors, "held_out": 0}
    return UnlabeledSets.from_arrays(name, **{**values, **changes})


def random_client(
    name: str, rows: int = 30, sets: int = 4, *, seed: int = 0, dtype: type[np.floating] = np.float64
) -> UnlabeledSets:
    """Return a client with two random columns, rows dealt to its sets in turn, and random priors of three classes."""
    generator = _generator(name, seed)
    inputs = generator.normal(size=(rows, 2)).astype(dtype)
    return UnlabeledSets.from_arrays(name, inputs, np.arange(rows) % sets, random_priors(generator, sets, 3))


def make_federation(*clients: UnlabeledSets, classes: Sequence[str] = (), **settings: Any) -> Federation:
    """Return the federation of these clients; classes are named "class 0", "class 1" ... unless given."""
    names = classes or [f"class {k}" for k in range(clients[0].priors.shape[1])]
    return Federation(clients, names, **settings)


def federation_with_priors(*priors: ArrayLike, rows: int = 2) -> Federation:
    """Return a federation with one client for each matrix of priors: client-1, client-2 ..."""
    clients = [make_client(f"client-{c}", matrix, rows) for c, matrix in enumerate(priors, start=1)]
    return Federation(clients, CLASSES[: clients[0].priors.shape[1]])


def random_federation(clients: int = 3, seed: int = 0) -> Federation:
    """Return a federation of random clients of different sizes."""
    return Federation([random_client(f"c{c}", 24 + 9 * c, seed=seed) for c in range(clients)], CLASSES)


def gaussian_rows(generator: np.random.Generator, priors: Matrix, sets: Labels) -> tuple[Matrix, Labels]:
    """Return Gaussian rows (n, 2) around the centres of their classes, and the classes, drawn by the priors."""
    labels = np.array([generator.choice(len(CENTRES), p=row) for row in np.asarray(priors)[sets]])
    return CENTRES[labels] + generator.normal(size=(len(sets), 2)), labels


def gaussian_study(
    names: Sequence[str] = NAMES,
    *,
    rows: int | Sequence[int] = 15,
    sets: int = 4,
    held_out: float = 0.2,
    priors: Callable[[np.random.Generator], Matrix] | None = None,
    test_prior: Matrix | None = None,
    dtype: type[np.floating] = np.float32,
) -> Study:
    """Return clients with Gaussian rows of three classes, and the labels of all rows.

    Parameters
    ----------
    names : sequence of str
        Names of the clients.
    rows : int or sequence of int
        Size of each set, or one size per set.
    sets : int
        Sets of every client, unless `priors` is given.
    held_out : float
        Share of the rows that is held out.
    priors : callable, optional
        Function of a random generator that returns the priors of a client.
    test_prior : array, optional
        Test prior, uniform unless given.
    dtype : type
        Type of the inputs.
    """
    clients, train_labels, held_out_labels = [], {}, {}
    for name in names:
        generator = _generator(name)
        table = random_priors(generator, sets, 3, purity=0.5) if priors is None else priors(generator)
        numbers = set_numbers(len(table), rows)
        inputs, labels = gaussian_rows(generator, table, numbers)
        client = UnlabeledSets.from_arrays(name, inputs.astype(dtype), numbers, table, held_out=held_out)
        clients.append(client)
        train_labels[name], held_out_labels[name] = labels[client.train.index], labels[client.held_out.index]
    test_labels = np.arange(90) % 3
    test_inputs = CENTRES[test_labels] + np.random.default_rng(0).normal(size=(90, 2))
    test_rows = torch.from_numpy(test_inputs.astype(dtype))
    truth = Truth(test_rows, test_labels, np.arange(90) % len(names), train_labels, held_out_labels)
    return Study(Federation(clients, CLASSES, test_prior), truth)


def random_study(
    seed: int,
    *,
    clients: int = 4,
    classes: int = 3,
    rows: tuple[int, int] = (3, 40),
    sets: tuple[int, int] = (1, 5),
    shape: tuple[int, ...] = (3,),
    shared: bool = False,
    held_out: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> Study:
    """Return clients with different numbers of rows, sets and classes, and labels that are independent of the rows.

    Parameters
    ----------
    seed : int
        Seed of all that is drawn.
    clients, classes : int
        Number of clients and of classes.
    rows, sets : tuple of int
        Least and largest number of rows and of sets of a client.
    shape : tuple of int
        Shape of one row.
    shared, held_out : bool, float
        Whether all clients use rows of one array, and the share of every set that is held out.
    dtype : torch.dtype
        Type of the inputs; of whole numbers, they are in 0..255.
    """
    generator = np.random.default_rng(seed)
    source = _random_inputs(generator, (60, *shape), dtype)
    made, labels = [], {}
    for c in range(clients):
        count = int(generator.integers(rows[0], rows[1] + 1))
        tables = int(generator.integers(sets[0], min(sets[1], count) + 1))
        inputs = source if shared else _random_inputs(generator, (count, *shape), dtype)
        index = np.sort(generator.choice(len(inputs), count, replace=False))
        numbers = generator.permutation(np.arange(count) % tables)
        priors = _random_sparse_priors(generator, tables, classes, every=c == 0)
        splits = split_held_out(numbers, held_out, np.random.default_rng([seed, c]))
        train, others = (make_rows(index[at], numbers[at]) for at in splits)
        made.append(UnlabeledSets(f"client-{c}", inputs, train, others, priors))
        labels[f"client-{c}"] = generator.integers(classes, size=len(train))
    scaling = Scaling(2.0, -0.5) if dtype.is_floating_point else Scaling(1 / 128, -1.0)
    federation = Federation(made, "abcd"[:classes], random_shares(generator, classes), scaling)
    held = {client.name: np.zeros(len(client.held_out), np.int64) for client in made}
    return Study(federation, Truth(source, np.zeros(60, np.int64), np.zeros(60, np.int64), labels, held))


def truth_of_training_rows(labels: Mapping[str, Labels], columns: int = 1) -> Truth:
    """Return the labels of training rows with one test row and no held-out rows."""
    none = np.zeros(0, np.int64)
    zero = np.zeros(1, np.int64)
    return Truth(torch.zeros(1, columns), zero, zero, dict(labels), dict.fromkeys(labels, none))


@cache
def digits(clients: int = 2, **options: Any) -> Study:
    """Return the handwritten digits, dealt to clients; the same object for the same arguments."""
    return fedul.load("digits", clients=clients, **options)


def dense_network(shape: tuple[int, ...] = (2,), classes: int = 3, *middle: nn.Module, width: int = 6) -> nn.Module:
    """Return a network of two dense layers with these modules in between, in float64."""
    layers = nn.Flatten(), nn.Linear(int(np.prod(shape)), width), *middle, nn.Tanh(), nn.Linear(width, classes)
    return nn.Sequential(*layers).double()


def seeded_network(
    shape: tuple[int, ...] = (2,), classes: int = 3, *middle: nn.Module, width: int = 6, seed: int = 0
) -> nn.Module:
    """Return `dense_network` with the same weights at every call."""
    torch.manual_seed(seed)
    return dense_network(shape, classes, *middle, width=width)


def batch_norm_network(shape: tuple[int, ...] = (2,), classes: int = 3) -> nn.Module:
    """Return a network with batch normalisation between its two dense layers, in float32."""
    return dense_network(shape, classes, nn.BatchNorm1d(32), nn.ReLU(), width=32).float()


class ResidualNetwork(nn.Module):
    """A convolution, and a dense layer whose output is added to its input; in float64, the same at every call."""

    def __init__(self, shape: tuple[int, ...] = IMAGE, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        width = 2 * shape[1] * shape[2]
        self.convolution = nn.Conv2d(shape[0], 2, 3, padding=1)
        self.dense = nn.Linear(width, width)
        self.last = nn.Linear(width, classes)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.convolution(inputs).tanh().flatten(1)
        return self.last(features + self.dense(features).tanh())


def make_classifier(model: str = "mlp", shape: tuple[int, ...] = (1, 4, 4), **changes: Any) -> Classifier:
    """Return a classifier of `CLASSES` with random weights; `changes` replace arguments of `Classifier`."""
    values: dict[str, Any] = {
        "module": changes.get("module") or build(model, shape, len(CLASSES), seed=0),
        "model": model,
        "classes": CLASSES,
        "input_shape": shape,
        "trained_prior": TRAINED_PRIOR,
        "temperature": 0.5,
    }
    return Classifier(**{**values, **changes})


def random_weights(generator: np.random.Generator, *, buffers: bool = True) -> Weights:
    """Return the parameters "a" and "b", and the buffers "level" (floating) and "count" (whole)."""
    weights = {"a": torch.from_numpy(generator.normal(size=(3, 2))), "b": torch.from_numpy(generator.normal(size=4))}
    if buffers:
        weights |= {"level": torch.from_numpy(generator.normal(size=3)), "count": torch.tensor(generator.integers(100))}
    return weights


def make_update(client: str = "a", delta: Weights | None = None, **changes: Any) -> Update:
    """Return an update of one row and one step with loss 0, unless changed."""
    return Update(client, delta or {}, **{"rows": 1, "steps": 1, "loss": 0.0, **changes})


def random_updates(
    generator: np.random.Generator, start: Weights, clients: int, steps: int | None = None
) -> list[Update]:
    """Return updates to `random_weights` with random numbers of rows and, unless given, of steps."""
    updates = []
    for c in range(clients):
        delta = {name: torch.from_numpy(generator.normal(size=tuple(start[name].shape))) for name in ("a", "b")}
        buffers = {}
        if "level" in start:
            count = torch.tensor(float(generator.integers(20)), dtype=torch.float64)
            buffers = {"level": torch.from_numpy(generator.normal(size=3)), "count": count}
        taken = int(generator.integers(1, 30)) if steps is None else steps
        updates.append(Update(f"c{c}", delta, int(generator.integers(1, 100)), taken, 0.0, buffers))
    return updates


def _generator(name: str, seed: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, *map(ord, name)])


def _random_inputs(generator: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    values: NDArray[Any] = (
        generator.normal(size=shape) if dtype.is_floating_point else generator.integers(256, size=shape)
    )
    return torch.from_numpy(values).to(dtype)


def _random_sparse_priors(generator: np.random.Generator, sets: int, classes: int, *, every: bool) -> Matrix:
    """Return priors some of which are zero; unless every class must be there, one may be missing at the client."""
    priors = random_priors(generator, sets, classes, zeros=0.0 if every else 0.3)
    if not every and classes > 2 and generator.random() < 0.5:
        missing = generator.integers(classes)
        priors[:, missing] = 0
        priors[:, missing - 1] += 1e-3
    return priors / priors.sum(axis=1, keepdims=True)
