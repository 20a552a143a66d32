"""Record of a comparison: the document `comparison.json`, with what is compared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul._utils.display import counted
from fedul._utils.documents import Document
from fedul._utils.files import require_unused, write_json
from fedul._utils.settings import to_dict
from fedul.config import BenchmarkDataConfig, CompareConfig, TrainConfig
from fedul.data.load import AnyDataConfig
from fedul.errors import InputError
from fedul.experiments.variants import CHOSEN_BY_VARIANTS
from fedul.training import read_versioned, settings_difference

FORMAT = "fedul-comparison"
VERSION = 2
RECORD = "comparison.json"


@dataclass(frozen=True)
class ComparisonRecord(Document):
    """What a comparison compares.

    Parameters
    ----------
    data : mapping of str to object
        Options of the data; paths of a user's own data are absolute.
    training : TrainConfig
        How all variants are trained.
    methods, algorithms : str
        The variants.
    seeds : int
        Number of seeds.
    data_fingerprint : str
        Digest of a user's own data with the first seed; empty for a benchmark.
    """

    data: Mapping[str, Any]
    training: TrainConfig
    methods: str
    algorithms: str
    seeds: int
    data_fingerprint: str = ""

    @classmethod
    def of(
        cls, config: CompareConfig, data: AnyDataConfig, training: TrainConfig, fingerprint: str
    ) -> ComparisonRecord:
        """Return the record of a comparison."""
        options = to_dict(replace(data, data_dir=None) if isinstance(data, BenchmarkDataConfig) else data)
        return cls(options, training, config.methods, config.algorithms, config.seeds, fingerprint)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that all variants share."""
        training = {key: value for key, value in to_dict(self.training).items() if key not in CHOSEN_BY_VARIANTS}
        return {**self.data, **training}

    @property
    def options(self) -> dict[str, Any]:
        """Options of `compare` that give this comparison."""
        return {**self.settings, "methods": self.methods, "algorithms": self.algorithms, "seeds": self.seeds}

    def difference(self, other: ComparisonRecord) -> str:
        """Return the first difference that makes `other` another comparison; empty if it is the same."""
        data = ({"data": record.data.get("data")} for record in (self, other))
        return settings_difference(*data) or settings_difference(self.settings, other.settings)


def stored_options(folder: Path, data: Any) -> dict[str, Any]:
    """Return the options of the comparison in a folder, to resume it; empty if there is none yet.

    Parameters
    ----------
    folder : Path
        The folder.
    data : object
        The data that the user names now; None for that of the comparison.
    """
    stored = read_record(folder)
    if stored is None:
        return {}
    there = stored.data.get("data")
    if isinstance(data, str) and there not in (data, os.path.abspath(os.path.expanduser(data))):
        # Options of another kind of data would not go together.
        raise _different(folder, settings_difference({"data": there}, {"data": data}))
    return stored.options


def read_record(folder: Path) -> ComparisonRecord | None:
    """Return what the comparison in a folder compares; None if there is none yet."""
    file, kind = folder / RECORD, ("comparison", "compare again")
    if not file.exists():
        return None
    return read_versioned(ComparisonRecord, file, FORMAT, VERSION, kind, "choose another --out")


def open_folder(folder: Path, record: ComparisonRecord, *, resume: bool) -> None:
    """Write the record into the folder; a folder that holds something else is refused and not changed."""
    stored = read_record(folder)
    if stored is None:
        require_unused(folder, "--out", "exists already and is not a comparison of fedul")
    elif difference := stored.difference(record):
        raise _different(folder, difference)
    elif stored.data_fingerprint != record.data_fingerprint:
        raise InputError(f"{folder}: its data has changed since; restore the data, or choose another --out.")
    elif record.training.rounds < stored.training.rounds:
        raise InputError(
            f"{folder}: already has {counted(stored.training.rounds, 'round')}; ask for at least as many with --rounds."
        )
    elif not resume:
        raise InputError(
            f"{folder}: already holds this comparison; add --resume to continue it, or choose another --out."
        )
    write_json(folder / RECORD, {"format": FORMAT, "version": VERSION, **record.to_dict()})


def _different(folder: Path, difference: str) -> InputError:
    return InputError(f"{folder}: holds a different comparison ({difference}); choose another --out.")
