"""Data of the user's own as a federation: rows of tables or images, and a table of the class priors of their sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedul.config import OwnDataConfig
from fedul.data.class_mix import parse_prior
from fedul.data.form import Form, common_form
from fedul.data.own_sets import Collection, Dealt, class_codes, dealt
from fedul.data.priors_table import read_priors
from fedul.errors import InputError
from fedul.federation import Federation, Rows, UnlabeledSets, held_apart, pooled_mix
from fedul.inputs import Index
from fedul.priors import Matrix, validate_test_prior
from fedul.randomness import numpy_generator
from fedul.schema import Schema
from fedul.settings import plain
from fedul.truth import Labels, Study


@dataclass(frozen=True, eq=False)
class OwnRows:
    """A user's rows, in their clients and sets, and parted into training and held-out ones; not yet inputs."""

    collection: Collection
    classes: tuple[str, ...]
    parts: Sequence[Dealt]
    splits: Mapping[str, tuple[Index, Index]]  # by client: positions among its rows to train on, and to hold out

    def form(self) -> Form:
        """What the training rows show of their form."""
        train = np.zeros(len(self.collection.clients.codes), dtype=bool)
        for part in self.parts:
            train[part.rows[self.splits[part.name][0]]] = True
        return self.collection.form(train)

    def clients(self, schema: Schema | None) -> list[UnlabeledSets]:
        """The clients, their rows made inputs by a schema that was agreed on."""
        inputs, found = self.collection.encoded(schema), []
        for part in self.parts:
            kept, apart = (
                Rows(torch.from_numpy(part.rows[at]), torch.from_numpy(part.numbers[at]))
                for at in self.splits[part.name]
            )
            found.append(UnlabeledSets(part.name, inputs, kept, apart, part.priors, part.set_names))
        return found


def own_rows(config: OwnDataConfig, *, name: str | None = None) -> OwnRows:
    """The rows that a user's files hold. With a name they are a single client's, which is called so."""
    collection = collected(config)
    assert config.priors is not None
    table = read_priors(
        config.priors, unit=config.priors_unit, client_column=config.client_column, set_column=config.set_column
    )
    parts = dealt(collection, table)
    if name is not None:
        if len(parts) > 1:
            raise InputError(
                f"{config.data}: has rows of {len(parts)} clients ({', '.join(part.name for part in parts[:3])}, ...), "
                "but a site is one; give its own rows only, or leave client-column out."
            )
        parts = [replace(parts[0], name=name)]
    splits = {
        part.name: held_apart(part.numbers, config.validation, numpy_generator(config.seed, "held-out", part.name))
        for part in parts
    }
    return OwnRows(collection, table.classes, parts, splits)


def load_own(config: OwnDataConfig) -> Study:
    """The federation that a user's files describe."""
    owned = own_rows(config)
    common = common_form({config.data: owned.form()}, owned.classes)
    clients = owned.clients(common.schema)
    prior = _test_prior(config.test_prior, owned.classes, clients)
    federation = Federation(clients, owned.classes, prior, common.scaling, common.schema)
    return Study(federation, None, plain(config), common.remarks, {part.name: part.sure for part in owned.parts})


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
            raise InputError(
                f"truth-column: rows of client '{client.name}' have no true class; fill '{config.truth_column}'."
            )
        found[client.name] = labels
    return found


def _test_prior(text: str, classes: tuple[str, ...], clients: Sequence[UnlabeledSets]) -> Matrix:
    if text == "natural":  # that of all rows together
        return validate_test_prior(pooled_mix(clients), classes, where="test-prior natural")
    return validate_test_prior(parse_prior(text, classes, where="test-prior"), classes, where="test-prior")
