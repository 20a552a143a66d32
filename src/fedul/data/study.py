"""`fedul.load`: a data set by name, dealt out to clients and sets."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedul.config import DataConfig, OwnDataConfig
from fedul.data import SOURCES, read
from fedul.data.partition import deal
from fedul.errors import InputError
from fedul.settings import make, plain, underscored
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


def data_config(options: Mapping[str, Any]) -> DataConfig | OwnDataConfig:
    """The configuration that options are meant for: of a data set by name, or of the user's own files."""
    data = options.get("data", DataConfig().data)
    by_name = data in SOURCES or not isinstance(data, str) or not _names_files(data)
    names = [{f.name for f in fields(kind)} for kind in (DataConfig, OwnDataConfig)]
    own, others = names if by_name else reversed(names)
    for name in underscored(options):
        if name in others - own:
            what = "tables and images of your own" if by_name else "data sets by name"
            raise InputError(f"{name.replace('_', '-')}: is for {what}, not for {data}; leave it out.")
    return make(DataConfig, options) if by_name else make(OwnDataConfig, options)


def _names_files(data: str) -> bool:
    return os.path.exists(os.path.expanduser(data)) or os.sep in data or "." in data or glob.has_magic(data)


def load_config(config: DataConfig | OwnDataConfig) -> Study:
    """The same from a configuration."""
    if isinstance(config, OwnDataConfig):
        from fedul.data.own import load_own

        return load_own(config)
    study = deal(read(config.data, config.data_dir), config)
    return Study(study.federation, study.truth, {k: v for k, v in plain(config).items() if k != "data_dir"})
