"""Data of the user's own as a federation: rows of tables or images, and a table of the class priors of their sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedul.config import OwnDataConfig
from fedul.data.class_mix import parse_prior
from fedul.data.own_sets import Collection, class_codes, dealt
from fedul.data.priors_table import read_priors
from fedul.errors import InputError
from fedul.federation import Federation, Rows, UnlabeledSets, held_apart, pooled_mix
from fedul.priors import Matrix, validate_test_prior
from fedul.randomness import numpy_generator
from fedul.settings import plain
from fedul.truth import Labels, Study


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
            raise InputError(
                f"truth-column: rows of client '{client.name}' have no true class; fill '{config.truth_column}'."
            )
        found[client.name] = labels
    return found


def _test_prior(text: str, classes: tuple[str, ...], clients: Sequence[UnlabeledSets]) -> Matrix:
    if text == "natural":  # that of all rows together
        return validate_test_prior(pooled_mix(clients), classes, where="test-prior natural")
    return validate_test_prior(parse_prior(text, classes, where="test-prior"), classes, where="test-prior")
