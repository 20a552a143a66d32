"""Federations from a user's data: rows of tables, images or arrays, and a table of the class priors of their sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedul._utils.randomness import numpy_generator
from fedul.config import FileDataConfig
from fedul.core import (
    Federation,
    Index,
    Labels,
    Matrix,
    Rows,
    Schema,
    Study,
    UnlabeledSets,
    pooled_class_mix,
    split_held_out,
    validate_test_prior,
)
from fedul.data.adjust_sites import apply_site_adjustment
from fedul.data.class_mix import parse_class_mix
from fedul.data.files.array_collection import ArrayCollection
from fedul.data.files.assign import ClientRows, Collection, assign_to_clients, class_codes
from fedul.data.files.image_collection import ImageCollection
from fedul.data.files.priors_table import PriorsTable, read_priors
from fedul.data.files.read_columns import column_notes, read_columns
from fedul.data.files.signature import DataSignature, common_signature
from fedul.data.files.table_collection import TableCollection
from fedul.data.files.tables import Table
from fedul.errors import InputError


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows assigned to clients and sets, and split into training and held-out rows; not yet encoded.

    Parameters
    ----------
    collection : Collection
        The rows.
    priors : PriorsTable
        The class priors.
    parts : sequence of ClientRows
        Rows of each client.
    splits : mapping of str to tuple of ndarray
        By client, positions among its rows to train on and to hold out.
    """

    collection: Collection
    priors: PriorsTable
    parts: Sequence[ClientRows]
    splits: Mapping[str, tuple[Index, Index]]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.priors.classes

    def signature(self) -> DataSignature:
        """Return the signature of the training rows."""
        train = np.zeros(len(self.collection.clients.codes), dtype=bool)
        for part in self.parts:
            train[part.rows[self.splits[part.name][0]]] = True
        return self.collection.signature(train)

    def clients(self, schema: Schema | None) -> list[UnlabeledSets]:
        """Return the clients, with their rows encoded by a schema."""
        return self.clients_with(self.collection.encode(schema))

    def clients_without_inputs(self) -> list[UnlabeledSets]:
        """Return the clients with their sets and class priors, for counts: their rows have no inputs."""
        return self.clients_with(torch.empty(len(self.collection.clients.codes), 0))

    def clients_with(self, inputs: Tensor) -> list[UnlabeledSets]:
        """Return the clients with these inputs of all rows."""
        clients = []
        for part in self.parts:
            train, held_out = (
                Rows(torch.from_numpy(part.rows[at]), torch.from_numpy(part.numbers[at]))
                for at in self.splits[part.name]
            )
            sets = part.priors, part.set_names, part.labelled_sets, part.prior_scope
            clients.append(UnlabeledSets(part.name, inputs, train, held_out, *sets))
        return clients

    def true_labels(self, column: str) -> dict[str, tuple[Labels, Labels]]:
        """Return by client the true classes of its training and held-out rows, from a column of a table."""
        if not isinstance(self.collection, TableCollection):
            raise InputError("truth-column: name the column of a table that holds the true classes.")
        codes = class_codes(self.collection.column(column), self.classes, column, self.collection)
        labels = {}
        for part in self.parts:
            train, held_out = (codes[part.rows[at]] for at in self.splits[part.name])
            if min(train.min(initial=0), held_out.min(initial=0)) < 0:
                raise InputError(f"truth-column: rows of client '{part.name}' have no true class; fill '{column}'.")
            labels[part.name] = train, held_out
        return labels


def read_file_rows(
    config: FileDataConfig, *, name: str | None = None, tables: Mapping[str, Table] | None = None
) -> FileRows:
    """Read the rows and priors that a configuration names.

    Parameters
    ----------
    config : FileDataConfig
        What to read.
    name : str, optional
        Name of the only client, at a site.
    tables : mapping of str to Table, optional
        Tables in memory that are used in place of the files "data" and "priors".
    """
    tables = tables or {}
    assert config.priors is not None
    collection = open_collection(config, tables.get("data"))
    priors = read_priors(
        tables.get("priors", config.priors),
        unit=config.priors_unit,
        client_column=config.client_column,
        set_column=config.set_column,
        classes=config.classes,
    )
    parts = assign_to_clients(collection, priors, config.priors_of)
    if name is not None:
        if len(parts) > 1:
            raise InputError(
                f"{config.data}: has rows of {len(parts)} clients ({', '.join(part.name for part in parts[:3])}, ...), "
                "but a site is one client; give only its rows, or leave out client-column."
            )
        parts = [replace(parts[0], name=name)]
    splits = {
        part.name: split_held_out(part.numbers, config.held_out, numpy_generator(config.seed, "held-out", part.name))
        for part in parts
    }
    return FileRows(collection, priors, parts, splits)


def load_files(config: FileDataConfig, tables: Mapping[str, Table]) -> Study:
    """Load the study that a user's files, or tables in memory, describe."""
    rows = read_file_rows(config, tables=tables)
    common = common_signature({config.data: rows.signature()}, rows.classes)
    clients = rows.clients(common.schema)
    prior = _parse_test_prior(config.test_prior, rows.classes, clients)
    columns = (
        read_columns(rows.collection, common.schema, common.warnings)
        if isinstance(rows.collection, TableCollection)
        else []
    )
    federation, messages = apply_site_adjustment(
        Federation(clients, rows.classes, prior, common.scaling, common.schema),
        config.site_adjustment,
        getattr(rows.collection, "client_column", None),
    )
    return Study(
        federation,
        None,
        warnings=[*rows.priors.notes, *(common.warnings if not columns else column_notes(columns)), *messages],
        prior_counts={part.name: part.cases for part in rows.parts},
        true_labels=rows.true_labels(config.truth_column) if config.truth_column else None,
        columns=columns,
        priors_unit=rows.priors.unit,
    )


def open_collection(config: FileDataConfig, table: Table | None = None) -> Collection:
    """Open the rows that a configuration names, or a table in memory."""
    path = Path(config.data).expanduser()
    kind: type[ImageCollection | ArrayCollection]
    if table is None and path.is_dir() and any(p.is_dir() and not p.name.startswith(".") for p in path.iterdir()):
        kind = ImageCollection
    elif table is None and path.suffix.lower() == ".npz":
        kind = ArrayCollection
    else:
        return TableCollection(config, table)
    if config.public_columns is not None:
        raise InputError("public-columns: is for tables; leave it out.")
    return kind(path, config)


def _parse_test_prior(text: str, classes: tuple[str, ...], clients: Sequence[UnlabeledSets]) -> Matrix:
    if text != "natural":
        return validate_test_prior(parse_class_mix(text, classes, where="test-prior"), classes, where="test-prior")
    mix = pooled_class_mix(clients)  # of all rows
    # A class without rows is refused by the federation, with a better reason.
    return mix if mix.all() else np.full(len(classes), 1 / len(classes))
