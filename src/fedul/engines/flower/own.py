"""What a site owns: its settings, its rows and their priors, and what a method or algorithm keeps here between rounds.

Every message is answered by a process of its own, so rows are made inputs once and kept beside the state.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedul.config import DataConfig, OwnDataConfig, SiteConfig
from fedul.data import SOURCES
from fedul.data.chosen import data_config
from fedul.data.form import Form
from fedul.engines.flower.agreement import Agreement
from fedul.engines.flower.site_file import beside, read_site
from fedul.engines.store import OnDisk
from fedul.errors import InputError
from fedul.federation import Rows, UnlabeledSets
from fedul.files import read_tensors, write_tensors
from fedul.schema.table import Number, TableSchema
from fedul.settings import plain
from fedul.truth import Study

if TYPE_CHECKING:
    from fedul.data.own import OwnRows

PATHS = ("data", "priors", "data_dir")


@dataclass(frozen=True, eq=False)
class Own:
    """A site's own data, behind its settings."""

    config: SiteConfig
    data: DataConfig | OwnDataConfig

    @classmethod
    def read(cls, path: str) -> Own:
        """From a site's settings file; paths in it are taken from where it stands."""
        file = Path(path).expanduser()
        config, options = read_site(path)
        for name in PATHS:
            if isinstance(options.get(name), str) and options[name] not in SOURCES:
                options[name] = str(beside(file, options[name]))
        try:
            return cls(config, data_config(options))
        except InputError as problem:
            raise InputError(f"{file}: {problem}") from None

    @property
    def rows(self) -> int:
        """How many rows it has to train on. Which ones is the site's own choice ([data] seed): a coordinator that could
        choose them would learn of single rows from the differences."""
        if isinstance(self.data, OwnDataConfig):
            return sum(len(kept) for kept, _ in self._rows.splits.values())
        return len(self._in_study().train)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that the site's priors name."""
        return self._rows.classes if isinstance(self.data, OwnDataConfig) else tuple(self._study.federation.classes)

    def form(self) -> Form:
        """What its rows look like."""
        if isinstance(self.data, OwnDataConfig):
            return self._rows.form()
        federation = self._study.federation
        return Form("array", shape=federation.input_shape, scaling=federation.scaling)

    def client(self, agreement: Agreement, run: str) -> UnlabeledSets:
        """The site as a client of a run: as it was kept, if neither files nor agreement have changed."""
        if isinstance(self.data, DataConfig):
            return self._ordered(self._in_study(), agreement)
        file = self.folder(run) / "rows.safetensors"
        key = self._stamp(agreement)
        with suppress(InputError):  # it is only a copy: one that is damaged is made again
            tensors, notes = read_tensors(file)
            if notes["key"] == key:
                train, held_out = (
                    Rows(tensors[f"{part}/index"], tensors[f"{part}/sets"]) for part in ("train", "held")
                )
                priors = tensors["priors"].numpy()
                return UnlabeledSets(self.config.name, tensors["inputs"], train, held_out, priors, notes["sets"])
        self._check(agreement)
        client = self._ordered(self._rows.clients(agreement.schema)[0], agreement)
        tensors = {
            "inputs": client.inputs,
            "train/index": client.train.index,
            "train/sets": client.train.sets,
            "held/index": client.held_out.index,
            "held/sets": client.held_out.sets,
            "priors": torch.from_numpy(np.ascontiguousarray(client.priors)),
        }
        for place in (Path(self.config.state), file.parent):  # readable by the site's own account only
            os.makedirs(place, mode=0o700, exist_ok=True)
        write_tensors(file, tensors, {"key": key, "sets": list(client.set_names)})
        return client

    def folder(self, run: str) -> Path:
        """Where this site keeps what belongs to a run."""
        return Path(self.config.state) / hashlib.sha256(run.encode()).hexdigest()[:16]

    def store(self, run: str) -> OnDisk:
        """What a method or an algorithm keeps here."""
        return OnDisk(self.folder(run) / "kept")

    @cached_property
    def _rows(self) -> OwnRows:
        from fedul.data.own import own_rows

        assert isinstance(self.data, OwnDataConfig)
        return own_rows(self.data, name=self.config.name)

    @cached_property
    def _study(self) -> Study:
        from fedul.data.study import load_config

        return load_config(self.data)

    def _in_study(self) -> UnlabeledSets:
        clients = {client.name: client for client in self._study.federation.clients}
        if self.config.name not in clients:
            raise InputError(f"site '{self.config.name}': the data set has {', '.join(clients)}; name the site so.")
        return clients[self.config.name]

    def _check(self, agreement: Agreement) -> None:
        """Refuses a schema that asks for more than the site offers, such as columns that it ignores."""
        schema = agreement.schema
        offered = self.form()
        if schema is not None and schema.shape != agreement.input_shape:
            raise InputError("the coordinator's agreement does not fit together; it needs the same fedul as the site.")
        if agreement.objection(offered):
            raise InputError(f"what the coordinator says was agreed on does not fit: {agreement.objection(offered)}.")
        if isinstance(schema, TableSchema):
            if strange := [name for name in schema.names if name not in offered.columns]:
                raise InputError(f"the coordinator asks for column '{strange[0]}', which the site does not offer.")
            if any(isinstance(column, Number) and not 0 < column.deviation < math.inf for column in schema.columns):
                raise InputError("the coordinator's schema has a spread that is no positive number.")

    def _ordered(self, client: UnlabeledSets, agreement: Agreement) -> UnlabeledSets:
        """The client with its class priors in the order of the agreement."""
        order = [self.classes.index(name) for name in agreement.classes]
        return replace(client, priors=client.priors[:, order])

    def _stamp(self, agreement: Agreement) -> str:
        """A digest of what the inputs depend on; a file counts by its size and time of change."""
        files = []
        for named in (self.data.data, self.data.priors or ""):
            path = Path(named).expanduser()
            found = path.rglob("*") if path.is_dir() else map(Path, glob.glob(str(path)))
            files += sorted((str(each), *_state(each)) for each in found if each.is_file())
        told: Mapping[str, Any] = {"agreement": agreement.plain(), "data": plain(self.data), "files": files}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns
