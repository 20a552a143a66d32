"""`fedul.load`: a data set by name, or a user's files or DataFrames, as a study.

Nothing here imports torch before data is loaded, so that the command line can check options quickly.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from fedul._utils.settings import build_config, to_dict, with_underscores
from fedul.config import IN_MEMORY, BenchmarkDataConfig, FileDataConfig
from fedul.data import SOURCES, read_source
from fedul.errors import InputError, wrong_type

if TYPE_CHECKING:
    from fedul.core import Study
    from fedul.data.files.tables import Table

AnyDataConfig = BenchmarkDataConfig | FileDataConfig


def load(data: Any = None, priors: Any = None, *, config: AnyDataConfig | None = None, **options: Any) -> Study:
    """Load data as a study: clients with unlabeled sets and, for research data, the truth kept apart.

    Parameters
    ----------
    data : str, Path or DataFrame, default="digits"
        Name of a data set (`fedul datasets` lists them); a path of a table, a folder or pattern of tables, a folder of
        images (client/set/file) or an .npz file; or a DataFrame of pandas, polars or pyarrow. A configuration is
        accepted too.
    priors : str, Path or DataFrame, optional
        Class priors of the sets: a table with the columns client, set and one per class. A pandas DataFrame may have
        (client, set), or set if there is one client, as its index.
    config : BenchmarkDataConfig or FileDataConfig, optional
        Options as a configuration; those that are given by name take precedence.
    **options
        Fields of `fedul.BenchmarkDataConfig` (clients, sets, split, ...) for a data set by name, or of
        `fedul.FileDataConfig` (client_column, set_column, test_prior, ...) for files and DataFrames.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        If the data or an option is wrong; the message names the file and row.

    Examples
    --------
    >>> study = load("digits", clients=5, sets=10)
    >>> len(study.federation.clients), study.federation.clients[0].priors.shape
    (5, (10, 10))

    >>> import pyarrow as pa
    >>> patients = pa.table({"month": ["Jan", "Jan", "Feb", "Feb"], "temperature": [38.2, 36.9, 37.0, 36.6]})
    >>> prevalence = pa.table({"month": ["Jan", "Feb"], "flu": [0.5, 0.2], "cold": [0.5, 0.8]})
    >>> load(patients, prevalence, set_column="month").federation.classes
    ('flu', 'cold')
    """
    if isinstance(data, AnyDataConfig):
        data, config = None, data
    if config is not None and not isinstance(config, AnyDataConfig):
        raise wrong_type("config", "a fedul.BenchmarkDataConfig or a fedul.FileDataConfig", config)
    given = {} if config is None else to_dict(config)
    given |= {name: value for name, value in (("data", data), ("priors", priors)) if value is not None}
    given |= with_underscores(options)
    frames = _dataframes(given)
    given |= dict.fromkeys(frames, IN_MEMORY)
    given |= {name: os.fspath(value) for name, value in given.items() if isinstance(value, os.PathLike)}
    resolved = resolve_data_config(given)
    return load_study(resolved, {name: _as_table(frame, name, resolved) for name, frame in frames.items()})


def load_study(config: AnyDataConfig, tables: Mapping[str, Table] | None = None) -> Study:
    """Load a study from a configuration, with tables in memory in place of the files "data" and "priors"."""
    tables = tables or {}
    if lost := [name for name in ("data", "priors") if getattr(config, name) == IN_MEMORY and name not in tables]:
        raise InputError(
            f"{lost[0]}: was passed as a DataFrame, which is not stored; load it again in Python and pass the study."
        )
    if isinstance(config, FileDataConfig):
        from fedul.data.files.load import load_files

        study = load_files(config, tables)
    else:
        from fedul.data.partition import partition

        study = partition(read_source(config.data, config.data_dir), config, tables.get("priors"))
    return replace(study, origin=with_absolute_paths(config))


def resolve_data_config(options: Mapping[str, Any]) -> AnyDataConfig:
    """Return the configuration that options are for: of a data set by name, or of files or a DataFrame."""
    data = options.get("data", BenchmarkDataConfig().data)
    by_name = not isinstance(data, str) or data in SOURCES or not _names_files(data)
    names = [{f.name for f in fields(kind)} for kind in (BenchmarkDataConfig, FileDataConfig)]
    own, others = names if by_name else reversed(names)
    for name in with_underscores(options):
        if name in others - own:
            if by_name and isinstance(data, str) and data not in SOURCES:
                raise InputError(f"data: there is no file, folder or data set '{data}'.")
            what = "files and DataFrames" if by_name else "data sets by name"
            raise InputError(f"{name.replace('_', '-')}: is for {what}, not for {data}; leave it out.")
    return build_config(BenchmarkDataConfig, options) if by_name else build_config(FileDataConfig, options)


def _names_files(data: str) -> bool:
    looks_like_path = os.sep in data or "." in data or glob.has_magic(data)
    return data == IN_MEMORY or looks_like_path or os.path.exists(os.path.expanduser(data))


def with_absolute_paths(config: AnyDataConfig) -> dict[str, Any]:
    """Return the options with absolute paths, so that they hold in any working directory."""
    options = to_dict(config)
    paths = {"priors", "data_dir", "public_columns"} | ({"data"} if isinstance(config, FileDataConfig) else set())
    if os.path.isfile(os.path.expanduser(config.test_prior)):
        paths.add("test_prior")
    for name in paths & options.keys():
        if options[name] not in (None, IN_MEMORY):
            options[name] = os.path.abspath(os.path.expanduser(options[name]))
    return options


def _dataframes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are DataFrames."""
    named = {name: options.get(name) for name in ("data", "priors")}
    frames = {name: value for name, value in named.items() if not isinstance(value, str | os.PathLike | None)}
    if frames:
        from fedul.data.files.memory_table import is_dataframe

        for name, frame in frames.items():
            if not is_dataframe(frame):
                raise wrong_type(name, "a path or a DataFrame", frame)
    return frames


def _as_table(frame: Any, name: str, config: AnyDataConfig) -> Table:
    """Return a DataFrame as a table."""
    from fedul.data.files.memory_table import as_table

    client, set_, label, truth = (getattr(config, f"{key}_column", None) for key in ("client", "set", "label", "truth"))
    keys = (client or "client", set_ or "set")
    if name == "priors":
        return as_table(frame, name, keys={*keys, "client", "set"}, unnamed_keys=keys)
    return as_table(frame, name, keys={*keys, *filter(None, (label, truth))})
