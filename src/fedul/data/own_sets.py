"""Rows of the user's own find their client, their set and its class priors; what does not fit is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.data.form import Form
from fedul.data.priors_table import PriorsTable, SetPriors
from fedul.errors import InputError
from fedul.priors import Matrix
from fedul.schema import Schema
from fedul.truth import Labels

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

    def form(self, train: NDArray[np.bool_]) -> Form:
        """What rows look like, as the training rows show it."""
        ...

    def encoded(self, schema: Schema | None) -> torch.Tensor:
        """All rows as a network sees them, by a schema that was agreed on."""
        ...


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
    for codes, what in ((clients.codes, "client"), (np.where(labels < 0, sets.codes, 0), "set")):
        if (nowhere := np.flatnonzero(codes < 0)).size:
            raise InputError(f"{collection.row(int(nowhere[0]))}: names no {what}; fill it, or drop the row.")
    _check_priors_have_rows(collection, table)
    order = np.argsort(clients.codes, kind="stable")
    ends = np.cumsum(np.bincount(clients.codes, minlength=len(clients.names)))
    parts = zip(clients.names, np.split(order, ends[:-1]), strict=True)
    return [_client(name, rows, sets, labels, table) for name, rows in parts if len(rows)]


def _check_priors_have_rows(collection: Collection, table: PriorsTable) -> None:
    """Refuses priors of clients and sets that no row is in: one of the two files is not what it should be."""
    clients, sets = collection.clients, collection.sets
    for name, own in table.clients.items():
        if name and name not in clients.names:
            raise InputError(
                f"{table.source}: has priors for client '{name}', of which {collection.what} has no rows; its clients "
                f"are {', '.join(clients.names[:8])}."
            )
        codes = sets.codes[clients.codes == clients.names.index(name)] if name else sets.codes
        here = {sets.names[code] for code in np.unique(codes[codes >= 0])}
        for lost in (each for each in own if each not in here):
            whose = f" of client '{name}'" if name else ""
            raise InputError(
                f"{table.source}: has priors for set '{lost}'{whose}, of which {collection.what} has no rows; drop the "
                "line, or add rows."
            )


def _client(name: str, rows: Codes, sets: Names, labels: Labels, table: PriorsTable) -> Dealt:
    codes, labelled = sets.codes[rows], labels[rows]
    priors = _priors_of(name, {sets.names[code] for code in np.unique(codes[labelled < 0])}, table)
    number_of = np.full(len(sets.names) + 1, -1)  # the last is for rows without a set
    found = list[Matrix]()
    for set_name, own in priors.items():
        code = sets.names.index(set_name)
        number_of[code] = len(found)
        found.append(_without_labelled(_unrounded(own, int((codes == code).sum())), labelled[codes == code]))
    sure = [_sureness(own.sure, int((codes == sets.names.index(each)).sum())) for each, own in priors.items()]
    numbers, names = np.where(labelled < 0, number_of[codes], -1), list(priors)
    for k in np.unique(labelled[labelled >= 0]):
        numbers[labelled == k] = len(names)
        names.append(_fresh(f"labelled {table.classes[k]}", names))
        found.append(np.eye(len(table.classes))[k])
        sure.append(np.inf)
    return Dealt(name, rows, numbers, np.stack(found), tuple(names), np.array(sure))


def _priors_of(client: str, needed: set[str], table: PriorsTable) -> Mapping[str, SetPriors]:
    """The priors of the sets that a client has unlabelled rows in, in the order of the table."""
    own = table.of(client) or {}
    if needed and not own:
        raise InputError(f"{table.source}: has no priors for client '{client}'; add a line for each of its sets.")
    for lost in sorted(needed - own.keys()):
        raise InputError(
            f"{table.source}: has no priors for set '{lost}' of client '{client}'; add a line for it, or drop its rows."
        )
    return {name: found for name, found in own.items() if name in needed}


def _fresh(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _fresh(f"{name}*", taken)


def _unrounded(own: SetPriors, rows: int) -> Matrix:
    """Shares that are counts of these rows but for their rounding, as those counts.

    Only where the rounding is far finer than a row: else any shares would look like counts.
    """
    counts = (own.shares * rows).round()
    near = np.abs(own.shares - counts / rows).max() <= own.rounding
    return counts / rows if own.rounding * rows <= 0.1 and near and counts.sum() == rows else own.shares


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
