"""What a site owns: its settings, its rows and their priors, and what methods and algorithms keep between rounds."""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul.config import DataConfig, OwnDataConfig, SiteConfig
from fedul.data import SOURCES
from fedul.data.chosen import data_config
from fedul.data.form import Form
from fedul.engines.flower.agreement import Agreement
from fedul.engines.flower.kept_rows import read_rows, write_rows
from fedul.engines.flower.site_file import beside, private, read_site
from fedul.engines.store import OnDisk
from fedul.errors import InputError, WorldError
from fedul.federation import UnlabeledSets
from fedul.schema.table import Number, TableSchema
from fedul.settings import plain, refuse_unknown, underscored
from fedul.truth import Study

if TYPE_CHECKING:
    from fedul.data.own import OwnRows

PATHS = ("data", "priors", "data_dir")
ROWS = "rows.safetensors"


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
        try:
            refuse_unknown("setting in [data]", options, DataConfig, OwnDataConfig)
            options = underscored(options)
            for name in PATHS:
                if isinstance(options.get(name), str) and options[name] not in SOURCES:
                    options[name] = str(beside(file, options[name]))
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

    def client(self, agreement: Agreement, run: str, *, joins: bool = False) -> UnlabeledSets:
        """The site as a client of a run: with its rows as they were when it joined, whatever its files are by now."""
        if isinstance(self.data, DataConfig):
            return self._ordered(self._in_study(), agreement)
        made_of = {"agreement": _digest(agreement.plain()), "data": self._stamp()}
        with self.writable():
            folder = self._made(run)
            kept = read_rows(folder / ROWS, self.config.name)
        if kept is None:
            if not joins:
                warn(f"the rows that were kept for this run are gone from {folder}; they are made of the files again.")
            self._check(agreement)
            client = self._ordered(self._rows.clients(agreement.schema)[0], agreement)
            with self.writable():
                write_rows(folder / ROWS, client, made_of)
            return client
        client, before = kept
        if before.get("agreement") != made_of["agreement"]:
            raise InputError("the coordinator has changed what was agreed on for this run; let it start another run.")
        if before.get("data") != made_of["data"]:
            warn("the site's files or settings have changed; in this run it goes on with its rows as they were.")
        return client

    def folder(self, run: str) -> Path:
        """Where this site keeps what belongs to a run."""
        return Path(self.config.state) / hashlib.sha256(run.encode()).hexdigest()[:16]

    def store(self, run: str) -> OnDisk:
        """What a method or an algorithm keeps here."""
        return OnDisk(self._made(run) / "kept")

    @contextmanager
    def writable(self) -> Iterator[None]:
        """For whatever reads and writes the state folder: says which it is, and what to do, if that is not possible."""
        try:
            yield
        except (OSError, WorldError) as problem:
            reason = str(problem).partition(";")[0] if isinstance(problem, WorldError) else _reason(problem)
            raise WorldError(
                f"the state folder {self.config.state} cannot be used ({reason}); let the site's account write there, "
                "make room, or name another folder (state in the site's settings)."
            ) from None

    def _made(self, run: str) -> Path:
        private(Path(self.config.state))
        return private(self.folder(run))

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

    def _stamp(self) -> str:
        """A digest of what the rows are made of; a file counts by its size and time of change."""
        files = []
        for named in (self.data.data, self.data.priors or ""):
            files += sorted((str(each), *_state(each)) for each in _files(Path(named).expanduser()) if each.is_file())
        return _digest({"data": plain(self.data), "files": files})


def warn(sentence: str) -> None:
    """Tells the site's log; the coordinator hears nothing of it."""
    logging.getLogger("flwr").warning("fedul: %s", sentence)


def _files(path: Path) -> Iterable[Path]:
    """What a path names: a folder with all that is in it, a file, or those that fit a pattern."""
    if path.is_dir():
        return path.rglob("*")
    return [path] if path.exists() else map(Path, glob.glob(str(path)))  # a file may have brackets in its name


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _reason(problem: OSError) -> str:
    where = f"{problem.filename}: " if problem.filename else ""
    return f"{where}{problem.strerror or problem}"
