"""`fedul.load`: a data set by name, dealt out to clients and sets."""

from __future__ import annotations

from typing import Any

from fedul.config import DataConfig, OwnDataConfig
from fedul.data import read
from fedul.data.chosen import data_config
from fedul.data.partition import deal
from fedul.settings import plain
from fedul.truth import Study


def load(data: str = "digits", **options: Any) -> Study:
    """Data as a study: clients with unlabeled sets, and, of research data, the truth kept apart.

    `data` is the name of a data set, with the fields of `fedul.DataConfig` (clients, sets, split, prior_recipe, ...) as
    options; or a table or images of your own, with those of `fedul.OwnDataConfig` (priors, client_column, ...).

    >>> study = load("digits", clients=5, sets=10)
    >>> len(study.federation.clients), study.federation.clients[0].priors.shape
    (5, (10, 10))
    """
    return load_config(data_config({"data": data, **options}))


def load_config(config: DataConfig | OwnDataConfig) -> Study:
    """The same from a configuration."""
    if isinstance(config, OwnDataConfig):
        from fedul.data.own import load_own

        return load_own(config)
    study = deal(read(config.data, config.data_dir), config)
    return Study(study.federation, study.truth, {k: v for k, v in plain(config).items() if k != "data_dir"})
