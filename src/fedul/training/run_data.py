"""Data of a run: where it was in training, where it is if the project was moved, and whether it is unchanged.

A run records absolute paths, and the same paths relative to its folder. The data is found in any working directory, and
beside the run if both were moved together.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedul.config import IN_MEMORY
from fedul.core import Study
from fedul.data.load import load
from fedul.errors import InputError
from fedul.training.perturbed_priors import stored_study
from fedul.training.run_files import CONFIG
from fedul.training.run_record import RunRecord, recorded_paths


def load_run_data(
    record: RunRecord, folder: Path | None, *, data: Any = None, priors: Any = None, truth_column: str | None = None
) -> Study:
    """Load the data that a run was trained on.

    Parameters
    ----------
    record : RunRecord
        The record of the run.
    folder : Path or None
        The run folder, if there is one.
    data, priors : str, Path or DataFrame, optional
        Where data and priors are now, if they have moved.
    truth_column : str, optional
        Column of the table with true classes.

    Raises
    ------
    InputError
        If the data is not recorded, is not where it was, or has changed.
    """
    name = "run" if folder is None else str(folder)
    if not record.data:
        raise InputError(
            f"{name}: does not record its data; if it was trained from Python, give study=...; if at sites, their "
            "evaluation is in evaluation.json."
        )
    given = {key: value for key, value in (("data", data), ("priors", priors)) if value is not None}
    added = {} if truth_column is None else {"truth_column": truth_column}
    for options in _options_to_try(record, folder, given):
        _check_present(name, {key: value for key, value in options.items() if key not in given})
        study = stored_study(load(**{**options, **given, **added}), folder)
        if study.federation.fingerprint() == record.data_fingerprint:
            return study
    if given:
        raise InputError(
            f"{name}: was trained on other data than {_described(given)}; name the data that it was trained on, or "
            "train again."
        )
    raise InputError(
        f"{name}: its data has changed since it was trained ({record.data['data']}); train again, restore the data, or "
        "name an unchanged copy with --data and --priors."
    )


def current_options(record: RunRecord, folder: Path) -> dict[str, Any]:
    """Return the options of a run's data, with paths beside the run where the recorded ones are gone."""
    return _options_to_try(record, folder, {})[0]


def data_files(run: str | Path) -> list[str]:
    """Return the paths of the data that the run in a folder was trained on; empty if there is no such record."""
    folder = Path(run)
    if not (folder / CONFIG).is_file():
        return []
    record = RunRecord.read(folder / CONFIG)
    paths = [options[key] for options in _options_to_try(record, folder, {}) for key in recorded_paths(options)]
    return list(dict.fromkeys([*paths, *(record.data[key] for key in recorded_paths(record.data))]))


def _options_to_try(record: RunRecord, folder: Path | None, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return options with paths to try: where the data was, else beside the run; then beside the run throughout."""
    recorded = dict(record.data)
    if folder is None:
        return [recorded]
    moved = {
        key: os.path.normpath(os.path.join(os.path.abspath(folder), path))
        for key, path in record.data_relative.items()
        if key not in given
    }
    moved = {key: path for key, path in moved.items() if _is_there(path)}
    found = {key: path for key, path in moved.items() if not _is_there(recorded[key])}
    to_try = [{**recorded, **found}]
    if moved != found and any(recorded[key] != path for key, path in moved.items()):
        to_try.append({**recorded, **moved})
    return to_try


def _check_present(name: str, options: Mapping[str, Any]) -> None:
    """Refuse paths where nothing is."""
    for key in ("data", "priors"):
        if options.get(key) == IN_MEMORY:
            raise InputError(
                f"{name}: its {key} was passed as a DataFrame, which is not stored; name a file with --{key}, or pass "
                "the study in Python."
            )
        if key in recorded_paths(options) and not _is_there(options[key]):
            what = "data was" if key == "data" else "class priors were"
            raise InputError(
                f"{name}: its {what} in {options[key]}, where nothing is now; restore it, or name where it is with "
                f"--{key} ({key}=...)."
            )


def _is_there(path: str) -> bool:
    return os.path.exists(path) or (glob.has_magic(path) and bool(glob.glob(path)))


def _described(given: Mapping[str, Any]) -> str:
    return " and ".join(
        str(value) if isinstance(value, str | os.PathLike) else "the DataFrame" for value in given.values()
    )
