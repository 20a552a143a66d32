"""Record of a run: the document `config.json`, with everything needed to repeat the run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from fedul import __version__
from fedul._utils.documents import Document, read_document
from fedul._utils.files import read_json, write_json
from fedul._utils.settings import to_dict
from fedul.config import BenchmarkDataConfig, FileDataConfig, TrainConfig
from fedul.errors import InputError
from fedul.models.weights import weights_of

T = TypeVar("T")

FORMAT = "fedul-run"
VERSION = 3
RESUMABLE_CHANGES = {
    "rounds",
    "dp_epsilon",
    "client_dp_epsilon",
    "patience",
    "checkpoint_every",
    "evaluate_every",
    "threads",
    "engine_mode",
    "workers",
    "device",
    "precision",
    "data_dir",
}
"""Settings that a resumed run may change: they do not alter the rounds already done."""
PATHS = ("data", "priors", "data_dir", "test_prior", "public_columns")
"""Options of data that may be paths."""
DEFAULTS = {
    **to_dict(TrainConfig()),
    **to_dict(BenchmarkDataConfig()),
    "site_adjustment": FileDataConfig.site_adjustment,
    "classes": list(FileDataConfig.classes),
}
"""Value of a setting that a run does not record, because it was written before the setting existed."""


@dataclass(frozen=True)
class RunRecord(Document):
    """Everything needed to repeat a run.

    Parameters
    ----------
    data : mapping of str to object
        Options of `fedul.load`; empty if the data came from Python, or stays at the sites.
    data_fingerprint : str
        Digest of the data, or of the spec that the sites agreed on.
    training : TrainConfig
        How the classifier is trained.
    network_fingerprint : str
        Digest of the names and shapes of the weights. It tells networks apart that users pass as objects: all of these
        are recorded as "custom".
    software : mapping of str to str
        Versions of fedul and PyTorch.
    data_relative : mapping of str to str
        The paths of `data` relative to the run folder, for a project that is moved as a whole.
    """

    data: Mapping[str, Any]
    data_fingerprint: str
    training: TrainConfig
    network_fingerprint: str
    software: Mapping[str, str]
    data_relative: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls, training: TrainConfig, module: nn.Module | None, data: Mapping[str, Any], data_fingerprint: str
    ) -> RunRecord:
        """Return the record of a run, with the software versions of this process."""
        return cls(
            data=dict(data),
            data_fingerprint=data_fingerprint,
            training=training,
            network_fingerprint="" if module is None else _network_fingerprint(module),
            software={"fedul": __version__, "torch": str(torch.__version__)},
        )

    @property
    def identity(self) -> str:
        """Digest of everything that distinguishes the run from others.

        Settings at their default are left out, so that a setting that a later version adds does not change it.
        """
        values = {
            **self._identifying_fields(),
            "data": _identifying_settings(self.data),
            "training": _identifying_settings(to_dict(self.training)),
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def difference(self, other: RunRecord) -> str:
        """Return the first difference that makes `other` another run, as a phrase; empty if it is the same run.

        The same data may be in another place.
        """
        theirs = other._identifying_fields()
        moved = set[str]()
        if self.data_fingerprint == other.data_fingerprint:
            moved = recorded_paths(self.data) & recorded_paths(other.data)
        for name, value in self._identifying_fields().items():
            if isinstance(value, Mapping):
                if difference := settings_difference(value, theirs[name], but=moved):
                    return difference
            elif value != theirs[name]:
                return f"{name.replace('_', ' ')} differs"
        return ""

    def _identifying_fields(self) -> dict[str, Any]:
        values = self.to_dict()
        return {name: values[name] for name in ("data", "data_fingerprint", "training", "network_fingerprint")}

    def write(self, file: Path) -> None:
        """Write `config.json`, with paths relative to its folder."""
        relative = {}
        for name in sorted(recorded_paths(self.data)):
            with suppress(ValueError):  # another drive
                relative[name] = os.path.relpath(self.data[name], os.path.abspath(file.parent))
        record = replace(self, data_relative=relative)
        write_json(file, {"format": FORMAT, "version": VERSION, **record.to_dict()})

    @classmethod
    def read(cls, file: Path) -> RunRecord:
        """Read `config.json`; InputError if it is damaged or of another version."""
        return read_versioned(cls, file, FORMAT, VERSION, ("run", "train again"), "delete the folder to run it again")


def recorded_paths(data: Mapping[str, Any]) -> set[str]:
    """Return the names of the options of data that are paths of files or folders; recorded paths are absolute."""
    return {name for name in PATHS if isinstance(data.get(name), str) and os.path.isabs(data[name])}


def settings_difference(stored: Mapping[str, Any], new: Mapping[str, Any], *, but: Collection[str] = ()) -> str:
    """Return the first setting in which two runs differ, as a phrase; empty if they are equal.

    The data comes first: other data has other options.
    """
    may_differ = {*RESUMABLE_CHANGES, *but}
    has_schedule = stored.get("schedule", DEFAULTS["schedule"]) != "constant"
    for key in sorted(set(stored) | set(new), key=lambda name: (name != "data", name)):
        there, here = (settings.get(key, DEFAULTS.get(key)) for settings in (stored, new))
        fixed = (key == "rounds" and has_schedule) or (key.endswith("dp_epsilon") and None in (there, here))
        if there == here or (key in may_differ and not fixed):
            continue
        there, here = ("not given" if value is None else value for value in (there, here))
        reason = ", and the learning rate of every round depends on it" if key == "rounds" else ""
        return f"{key.replace('_', '-')} is {there} there, {here} here{reason}"
    return ""


def read_versioned(kind: type[T], file: Path, format: str, version: int, folder: tuple[str, str], repair: str) -> T:
    """Return a JSON document that has a format and a version; InputError if these differ, or the file is damaged.

    Parameters
    ----------
    kind : type
        Dataclass of the document.
    file : Path
        The file.
    format : str
    version : int
        Required values of its fields "format" and "version".
    folder : tuple of str
        What the folder contains, and what to do if the version differs, for messages: ("run", "train again").
    repair : str
        What to do if the document is damaged and there is no copy of it, for messages.
    """
    what, again = folder
    stored = read_json(file)
    if not isinstance(stored, dict) or stored.get("format") != format:
        raise InputError(f"{file.parent}: {file.name} does not belong to a {what} of fedul; choose another folder.")
    if stored.get("version") != version:
        raise InputError(
            f"{file.parent}: written by another version of fedul (format {stored.get('version')}, this one reads "
            f"{version}); use that version, or {again} in another folder."
        )
    try:
        return read_document(kind, {key: each for key, each in stored.items() if key not in ("format", "version")})
    except ValueError as problem:
        raise InputError(f"{file}: damaged ({problem}); restore a copy of it, or {repair}.") from None


def _network_fingerprint(module: nn.Module) -> str:
    shapes = sorted((name, tuple(tensor.shape)) for name, tensor in weights_of(module).items())
    return hashlib.sha256(repr(shapes).encode()).hexdigest()


def _identifying_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that distinguish a run from others, without those at their default."""
    left_out = RESUMABLE_CHANGES | recorded_paths(settings)  # the fingerprint identifies the data, in any place
    return {key: value for key, value in settings.items() if key not in left_out and value != DEFAULTS.get(key)}
