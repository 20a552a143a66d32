"""Which data a user means: a data set by name, or files of their own. Nothing here imports torch."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedul.config import DataConfig, OwnDataConfig
from fedul.data import SOURCES
from fedul.errors import InputError
from fedul.settings import make, underscored


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
