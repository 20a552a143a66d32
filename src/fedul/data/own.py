"""Data of the user's own as a federation: rows of tables or images, and a table of the class priors of their sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.config import OwnDataConfig
from fedul.data.class_mix import parse_prior
from fedul.data.priors_table import ClientPriors, PriorsTable, read_priors
from fedul.errors import InputError
from fedul.federation import Federation, Rows, Scaling, UnlabeledSets, held_apart
from fedul.priors import Matrix, validate_test_prior
from fedul.randomness import numpy_generator
from fedul.schema import Schema
from fedul.settings import plain
from fedul.truth import Labels, Study

Codes = NDArray[np.int64]
ALONE = "data"
"""The name of the only client, where none is named."""


@dataclass(frozen=True, eq=False)
class Names:
    """One name a row, as numbers; -1 where there is none."""

    names: tuple[str, ...]
    codes: Codes  # (n,)


class Collection(Protocol):
    """Rows of the user's, before they are clients: tables, image files, arrays."""

    @property
    def what(self) -> str: ...  # as the user named it

    @property
    def clients(self) -> Names: ...

    @property
    def sets(self) -> Names: ...

    @property
    def labels(self) -> Names | None: ...

    def row(self, number: int) -> str:
        """Where a row stands, in words."""
        ...

    def inputs(
        self, train: NDArray[np.bool_], classes: Sequence[str]
    ) -> tuple[torch.Tensor, Schema | None, Scaling, list[str]]:
        """The rows as a network sees them, how they became so (learned from the training rows), and remarks."""
        ...


def load_own(config: OwnDataConfig) -> Study:
    """The federation that a user's files describe."""
    collection = collected(config)
    assert config.priors is not None
    table = read_priors(
        config.priors, unit=config.priors_unit, client_column=config.client_column, set_column=config.set_column
    )
    parts = dealt(collection, table)
    train = np.zeros(len(collection.clients.codes), dtype=bool)
    splits = {}
    for part in parts:
        generator = numpy_generator(config.seed, "held-out", part.name)
        splits[part.name] = held_apart(part.numbers, config.validation, generator)
        train[part.rows[splits[part.name][0]]] = True
    inputs, schema, scaling, remarks = collection.inputs(train, table.classes)
    clients, counts = [], {}
    for part in parts:
        kept, apart = (
            Rows(torch.from_numpy(part.rows[at]), torch.from_numpy(part.numbers[at])) for at in splits[part.name]
        )
        clients.append(UnlabeledSets(part.name, inputs, kept, apart, part.priors, part.set_names))
        counts[part.name] = part.sure
    prior = _test_prior(config.test_prior, table.classes, clients)
    federation = Federation(clients, table.classes, prior, scaling, schema)
    return Study(federation, None, plain(config), remarks, counts)


def collected(config: OwnDataConfig) -> Collection:
    """The rows that the configuration names."""
    path = Path(config.data).expanduser()
    if path.is_dir() and any(each.is_dir() and not each.name.startswith(".") for each in path.iterdir()):
        from fedul.data.images import ImageFolder

        return ImageFolder(path, config)
    if path.suffix.lower() == ".npz":
        from fedul.data.arrays import Arrays

        return Arrays(path, config)
    from fedul.data.own_table import OwnTable

    return OwnTable(config)


def true_labels(config: OwnDataConfig, federation: Federation) -> dict[str, tuple[Labels, Labels]]:
    """The true class of every training and held-out row of each client, from the column that holds it."""
    from fedul.data.own_table import OwnTable

    collection = collected(config)
    if config.truth_column is None or not isinstance(collection, OwnTable):
        raise InputError("truth-column: name the column of a table that holds the true classes.")
    truth = collection.column(config.truth_column)
    codes = class_codes(truth, tuple(federation.classes), config.truth_column, collection)
    found = {}
    for client in federation.clients:
        labels = codes[client.train.index.numpy()], codes[client.held_out.index.numpy()]
        if min(part.min(initial=0) for part in labels) < 0:
            raise InputError(f"truth-column: rows of client '{client.name}' have no true class; fill '{truth}'.")
        found[client.name] = labels
    return found


@dataclass(frozen=True, eq=False)
class Dealt:
    """One client's rows, their set numbers, and the priors of these sets."""

    name: str
    rows: Codes  # (n,)
    numbers: Codes  # (n,)
    priors: Matrix  # (M, K)
    set_names: tuple[str, ...]
    sure: Matrix  # (M,)


def dealt(collection: Collection, table: PriorsTable) -> list[Dealt]:
    """The clients, every row in its set; labelled rows are in sets of one class."""
    clients, sets = collection.clients, collection.sets
    labels = np.full(len(clients.codes), -1)
    if collection.labels is not None:
        labels = class_codes(collection.labels, table.classes, "label-column", collection)
    if (nowhere := np.flatnonzero(clients.codes < 0)).size:
        raise InputError(f"{collection.row(int(nowhere[0]))}: names no client; fill it, or drop the row.")
    if (nowhere := np.flatnonzero((sets.codes < 0) & (labels < 0))).size:
        raise InputError(f"{collection.row(int(nowhere[0]))}: names no set; fill it, or drop the row.")
    _check_clients(collection, table)
    order = np.argsort(clients.codes, kind="stable")
    ends = np.cumsum(np.bincount(clients.codes, minlength=len(clients.names)))
    found = []
    for name, rows in zip(clients.names, np.split(order, ends[:-1]), strict=True):
        if len(rows):
            found.append(_client(name, rows, sets, labels, table, collection))
    return found


def _check_clients(collection: Collection, table: PriorsTable) -> None:
    strangers = [name for name in table.clients if name and name not in collection.clients.names]
    if strangers:
        raise InputError(
            f"{table.source}: has priors for client '{strangers[0]}', of which {collection.what} has no rows; its "
            f"clients are {', '.join(collection.clients.names[:8])}."
        )
    if "" in table.clients:
        known = set(collection.sets.names)
        lost = [name for name in table.clients[""].sets if name not in known]
        if lost:
            raise InputError(
                f"{table.source}: has priors for set '{lost[0]}', of which {collection.what} has no rows; drop the "
                "line, or add rows."
            )


def _client(name: str, rows: Codes, sets: Names, labels: Labels, table: PriorsTable, collection: Collection) -> Dealt:
    own, codes, labelled = table.of(name), sets.codes[rows], labels[rows]
    here = [sets.names[code] for code in np.unique(codes[codes >= 0])]
    if own is None:
        if (labelled < 0).any():
            raise InputError(f"{table.source}: has no priors for client '{name}'; add a line for each of its sets.")
        own = ClientPriors((), np.empty((0, len(table.classes))), np.empty(0))
    needed = {sets.names[code] for code in np.unique(codes[(codes >= 0) & (labelled < 0)])}
    for set_name in sorted(needed):
        if set_name not in own.sets:
            raise InputError(
                f"{table.source}: has no priors for set '{set_name}' of client '{name}'; add a line for it, or drop "
                "its rows."
            )
    if name in table.clients:
        for set_name in own.sets:
            if set_name not in here:
                raise InputError(
                    f"{table.source}: has priors for set '{set_name}' of client '{name}', of which {collection.what} "
                    "has no rows; drop the line, or add rows."
                )
    place = {sets.names.index(each): number for number, each in enumerate(own.sets) if each in needed}
    number_of = np.full(len(sets.names) + 1, -1)  # the last is for rows without a set
    kept, priors, sure = list[str](), list[Matrix](), list[float]()
    for code, number in sorted(place.items(), key=lambda item: item[1]):
        number_of[code] = len(kept)
        inside = labelled[codes == code]
        kept.append(own.sets[number])
        priors.append(_without_labelled(own.priors[number], inside))
        sure.append(_sureness(float(own.sure[number]), len(inside)))
    numbers = np.where(labelled < 0, number_of[codes], -1)
    for k in np.unique(labelled[labelled >= 0]):
        numbers[labelled == k] = len(kept)
        kept.append(_fresh(f"labelled {table.classes[k]}", kept))
        priors.append(np.eye(len(table.classes))[k])
        sure.append(np.inf)
    return Dealt(name, rows, numbers, np.stack(priors), tuple(kept), np.array(sure))


def _fresh(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _fresh(f"{name}*", taken)


def _without_labelled(priors: Matrix, labels: Labels) -> Matrix:
    """The priors of a set without its labelled rows (-1: not labelled).

    Shares that are these rows' own change when rows are taken out; those of a population do not.
    """
    counts = priors * len(labels)
    if not (labels >= 0).any() or np.abs(counts - counts.round()).max() > 1e-6 * len(labels):
        return priors
    left = np.maximum(counts - np.bincount(labels[labels >= 0], minlength=len(priors)), 0)
    return left / left.sum() if left.sum() > 0 else priors


def _sureness(counts: float, rows: int) -> float:
    """Counts of exactly these rows are not an estimate of anything: they are certain."""
    return np.inf if counts == rows else counts


def class_codes(words: Names, classes: tuple[str, ...], option: str, collection: Collection) -> Labels:
    """Names of classes as their numbers."""
    numbers = {name: number for number, name in enumerate(classes)}
    codes = np.array([*(numbers.get(word, -2) for word in words.names), -1], dtype=np.int64)[words.codes]
    if (strange := np.flatnonzero(codes == -2)).size:
        row = int(strange[0])
        raise InputError(
            f"{collection.row(row)}: '{words.names[words.codes[row]][:40]}' of {option} is none of the classes "
            f"{', '.join(classes[:12])}; mend it or leave it empty."
        )
    return codes


def _test_prior(text: str, classes: tuple[str, ...], clients: Sequence[UnlabeledSets]) -> Matrix:
    if text == "natural":  # that of all rows together
        sizes = np.array([len(client.train) for client in clients], dtype=np.float64)
        mix: Matrix = (sizes[:, None] * np.stack([client.class_mix for client in clients])).sum(axis=0) / sizes.sum()
        return validate_test_prior(mix, classes, where="test-prior natural")
    return validate_test_prior(parse_prior(text, classes, where="test-prior"), classes, where="test-prior")
