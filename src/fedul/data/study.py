"""`fedul.load`: a data set by name, dealt out to clients and sets."""

from __future__ import annotations

from typing import Any

from fedul.config import DataConfig
from fedul.data import read
from fedul.data.partition import deal
from fedul.settings import make, plain
from fedul.truth import Study


def load(data: str = "digits", **options: Any) -> Study:
    """Research data as a study: clients with unlabeled sets, and the truth kept apart.

    `options` are the fields of `fedul.DataConfig` (clients, sets, split, prior_recipe, ...).

    >>> study = load("digits", clients=5, sets=10)
    >>> len(study.federation.clients), study.federation.clients[0].priors.shape
    (5, (10, 10))
    """
    return load_config(make(DataConfig, {"data": data, **options}))


def load_config(config: DataConfig) -> Study:
    """The same from a configuration."""
    study = deal(read(config.data, config.data_dir), config)
    return Study(study.federation, study.truth, {k: v for k, v in plain(config).items() if k != "data_dir"})
