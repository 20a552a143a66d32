"""Assignment of rows to clients, sets and class priors; errors name what does not match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fedul._utils.display import counted
from fedul.core import Index, Labels, Matrix, PriorScope, Schema
from fedul.data.files.priors_table import PriorsTable, StatedPriors
from fedul.data.files.schema.column_stats import as_words
from fedul.data.files.signature import DataSignature
from fedul.errors import InputError, list_names

SINGLE_CLIENT = "data"
"""Name of the only client, where none is named."""


@dataclass(frozen=True, eq=False)
class NamedCodes:
    """One name per row, as numbers; -1 where there is none."""

    names: tuple[str, ...]
    codes: Index  # (n,)

    @classmethod
    def of(cls, words: Sequence[str]) -> NamedCodes:
        """Return the words of all rows as codes, in the order in which they first occur."""
        known = {word: number for number, word in enumerate(dict.fromkeys(words))}
        return cls(tuple(known), np.array([known[word] for word in words], dtype=np.int64))


class Collection(Protocol):
    """Rows before they are assigned to clients: tables, image files or arrays."""

    source: str  # how messages name the rows
    clients: NamedCodes
    sets: NamedCodes
    labels: NamedCodes | None

    def describe_row(self, number: int) -> str:
        """Return where a row is, for messages."""

    def signature(self, train: NDArray[np.bool_]) -> DataSignature:
        """Return the signature of the rows, from the training rows (a mask)."""

    def encode(self, schema: Schema | None) -> torch.Tensor:
        """Return all rows as network inputs."""


@dataclass(frozen=True, eq=False)
class ClientRows:
    """Rows of one client.

    Parameters
    ----------
    name : str
        Name of the client.
    rows : ndarray of shape (n,)
        Its rows in the collection.
    numbers : ndarray of shape (n,)
        Set of each row.
    priors : ndarray of shape (M, K)
        Class priors of the sets.
    set_names : tuple of str
        Names of the sets.
    cases : ndarray of shape (M,)
        Number of counted cases that the priors are as certain as; infinity means exact.
    labelled_sets : tuple of int
        Sets of rows whose label is known; their priors are one-hot.
    prior_scope : PriorScope
        What the priors speak of.
    """

    name: str
    rows: Index
    numbers: Index
    priors: Matrix
    set_names: tuple[str, ...]
    cases: Matrix
    labelled_sets: tuple[int, ...] = ()
    prior_scope: PriorScope = field(default_factory=PriorScope)


def assign_to_clients(collection: Collection, table: PriorsTable, priors_of: str = "auto") -> list[ClientRows]:
    """Return the clients, with every row in its set; labelled rows are in sets of one class.

    Parameters
    ----------
    collection : Collection
        The rows.
    table : PriorsTable
        The class priors.
    priors_of : {"auto", "rows", "population"}, default="auto"
        What the priors speak of; "auto" means the rows if counts add up to the rows of every set of a client.
    """
    clients, sets = collection.clients, collection.sets
    labels = np.full(len(clients.codes), -1)
    if collection.labels is not None:
        labels = class_codes(collection.labels, table.classes, "label-column", collection)
    for codes, what in ((clients.codes, "client"), (np.where(labels < 0, sets.codes, 0), "set")):
        if (nowhere := np.flatnonzero(codes < 0)).size:
            raise InputError(f"{collection.describe_row(int(nowhere[0]))}: names no {what}; fill it, or drop the row.")
    table = _with_names_of_rows(table, collection)
    _check_priors_have_rows(collection, table)
    order = np.argsort(clients.codes, kind="stable")
    ends = np.cumsum(np.bincount(clients.codes, minlength=len(clients.names)))
    parts = zip(clients.names, np.split(order, ends[:-1]), strict=True)
    return [_client_rows(name, rows, sets, labels, table, priors_of) for name, rows in parts if len(rows)]


def _with_names_of_rows(table: PriorsTable, collection: Collection) -> PriorsTable:
    """Return the priors under the names that rows have: those of a table are read as words, so '01' is '1'."""

    def matched(name: str, known: tuple[str, ...]) -> str:
        return name if name in ("", *known) else as_words(pa.array([name]))[0].as_py() or name

    clients, sets = collection.clients.names, collection.sets.names
    renamed = {
        matched(client, clients): {matched(name, sets): stated for name, stated in priors.items()}
        for client, priors in table.clients.items()
    }
    return replace(table, clients=renamed)


def _check_priors_have_rows(collection: Collection, table: PriorsTable) -> None:
    """Raise an InputError for priors of a client or set without rows: one of the two tables is wrong."""
    clients, sets = collection.clients, collection.sets
    for name, stated in table.clients.items():
        if name and name not in clients.names:
            raise InputError(
                f"{table.source}: has priors for client '{name}', of which {collection.source} has no rows; its "
                f"clients are {list_names(clients.names)}."
            )
        codes = sets.codes[clients.codes == clients.names.index(name)] if name else sets.codes
        here = {sets.names[code] for code in np.unique(codes[codes >= 0])}
        for lost in (each for each in stated if each not in here):
            whose = f" of client '{name}'" if name else ""
            raise InputError(
                f"{table.source}: has priors for set '{lost}'{whose}, of which {collection.source} has no rows; drop "
                "the line, or add rows."
            )


def _client_rows(
    name: str, rows: Index, sets: NamedCodes, labels: Labels, table: PriorsTable, priors_of: str
) -> ClientRows:
    codes, labelled = sets.codes[rows], labels[rows]
    stated = _stated_priors(name, {sets.names[code] for code in np.unique(codes[labelled < 0])}, table)
    sizes = {set_name: int((codes == sets.names.index(set_name)).sum()) for set_name in stated}
    counted = _are_of_rows(name, stated, sizes, table, priors_of)
    number_of = np.full(len(sets.names) + 1, -1)  # the last is for rows without a set
    priors: list[Matrix] = []
    cases: list[float] = []
    rounding = 0.0
    for set_name, own in stated.items():
        code = sets.names.index(set_name)
        number_of[code] = len(priors)
        if counted:
            own = _unrounded(own, sizes[set_name])
            own = replace(own, shares=_without_labelled(own.shares, labelled[codes == code]))
        adds_up = own.counted and own.cases == sizes[set_name] and priors_of != "population"
        priors.append(own.shares)
        cases.append(np.inf if counted or adds_up else own.cases)
        rounding = max(rounding, own.rounding)
    numbers, names = np.where(labelled < 0, number_of[codes], -1), list(stated)
    for k in np.unique(labelled[labelled >= 0]):
        numbers[labelled == k] = len(names)
        names.append(_unused_name(f"labelled {table.classes[k]}", names))
        priors.append(np.eye(len(table.classes))[k])
        cases.append(np.inf)
    labelled_sets = tuple(range(len(stated), len(names)))
    scope = PriorScope("rows" if counted else "population", rounding)
    return ClientRows(name, rows, numbers, np.stack(priors), tuple(names), np.array(cases), labelled_sets, scope)


def _are_of_rows(
    client: str, stated: Mapping[str, StatedPriors], sizes: Mapping[str, int], table: PriorsTable, priors_of: str
) -> bool:
    """Return whether the priors of a client speak of exactly the rows of its sets."""
    other = [name for name, own in stated.items() if own.counted and own.cases != sizes[name]]
    if priors_of == "rows" and other:
        raise InputError(
            f"{table.source}: the counts of set '{other[0]}' of client '{client}' sum to {stated[other[0]].cases:g}, "
            f"but it has {counted(int(sizes[other[0]]), 'row')}; correct them, or use --priors-of population."
        )
    if priors_of == "auto":
        return not other and all(own.counted for own in stated.values())
    return priors_of == "rows"


def _stated_priors(client: str, needed: set[str], table: PriorsTable) -> Mapping[str, StatedPriors]:
    """Return the priors of the sets in which a client has unlabelled rows, in the order of the table."""
    stated = table.priors_of(client)
    if needed and not stated:
        raise InputError(f"{table.source}: has no priors for client '{client}'; add a line for each of its sets.")
    for lost in sorted(needed - stated.keys()):
        raise InputError(
            f"{table.source}: has no priors for set '{lost}' of client '{client}'; add a line for it, or drop its rows."
        )
    return {name: own for name, own in stated.items() if name in needed}


def _unused_name(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _unused_name(f"{name}*", taken)


def _unrounded(own: StatedPriors, rows: int) -> StatedPriors:
    """Return rounded class shares of exactly these rows as the exact ones, if only one number of rows fits each."""
    counts = (own.shares * rows).round()
    near = np.abs(own.shares - counts / rows).max() <= own.rounding
    if own.rounding * rows < 0.5 and near and counts.sum() == rows:
        return replace(own, shares=counts / rows, rounding=0.0)
    return own


def _without_labelled(priors: Matrix, labels: Labels) -> Matrix:
    """Return the class shares of exactly these rows without the labelled ones (-1: not labelled)."""
    left = np.maximum(priors * len(labels) - np.bincount(labels[labels >= 0], minlength=len(priors)), 0)
    return left / left.sum() if (labels >= 0).any() and left.sum() > 0 else priors


def class_codes(words: NamedCodes, classes: tuple[str, ...], option: str, collection: Collection) -> Labels:
    """Return class names as class numbers; -1 where there is none."""
    numbers = {name: number for number, name in enumerate(classes)}
    codes = np.array([*(numbers.get(word, -2) for word in words.names), -1], dtype=np.int64)[words.codes]
    if (unknown := np.flatnonzero(codes == -2)).size:
        row = int(unknown[0])
        raise InputError(
            f"{collection.describe_row(row)}: '{words.names[words.codes[row]][:40]}' of {option} is none of the "
            f"classes {list_names(classes)}; correct it or leave it empty."
        )
    return codes
