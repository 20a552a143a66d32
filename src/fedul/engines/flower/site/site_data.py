"""Data of a site: its settings, rows and priors, and the state of methods and algorithms between rounds."""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedul._utils.settings import to_dict
from fedul.config import BenchmarkDataConfig, FileDataConfig
from fedul.core import Study, UnlabeledSets
from fedul.data.files.schema.table import Number, TableSchema
from fedul.data.files.signature import DataSignature
from fedul.engines.client_store import DiskStore
from fedul.engines.flower.identity.roster import SiteIdentity
from fedul.engines.flower.protocol.run_spec import RunSpec
from fedul.engines.flower.secure.statistics import SiteTotals
from fedul.engines.flower.settings import SiteConfig
from fedul.engines.flower.site.row_cache import read_row_cache, write_row_cache
from fedul.engines.flower.site.site_adjustment import adjust_site
from fedul.engines.flower.site.site_file import private_folder, read_site_settings
from fedul.engines.flower.site.site_priors import perturb_site, read_draws
from fedul.errors import EnvironmentFailure, InputError

if TYPE_CHECKING:
    from fedul.data.files.load import FileRows

ROW_CACHE = "rows.safetensors"
CLIENT_STATES = "clients"
EMPTY = {"nothing": torch.zeros(1)}
"""Stored where there are no tensors, so that a lost file differs from one that never existed."""


@dataclass(frozen=True, eq=False)
class SiteData:
    """Data of one site.

    Parameters
    ----------
    config : SiteConfig
        Name, limits and state folder of the site.
    data : BenchmarkDataConfig or FileDataConfig
        Its rows and priors.
    """

    config: SiteConfig
    data: BenchmarkDataConfig | FileDataConfig

    @classmethod
    def read(cls, path: str) -> SiteData:
        """Read a site's settings file; paths in it are relative to its folder."""
        return cls(*read_site_settings(path))

    @property
    def rows(self) -> int:
        """Number of rows to train on.

        The site chooses the rows ([data] seed): a coordinator that could choose them would learn about single rows from
        differences.
        """
        if isinstance(self.data, FileDataConfig):
            return sum(len(train) for train, _ in self._file_rows.splits.values())
        return len(self._client_of_study().train)

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that the site's priors name."""
        if isinstance(self.data, FileDataConfig):
            return self._file_rows.classes
        return tuple(self._study.federation.classes)

    def signature(self) -> DataSignature:
        """Return the form of the site's rows."""
        if isinstance(self.data, FileDataConfig):
            return self._file_rows.signature()
        federation = self._study.federation
        return DataSignature("array", shape=federation.input_shape, scaling=federation.scaling)

    def totals(self, classes: Sequence[str]) -> SiteTotals:
        """Return statistics of the training rows, with the classes in this order."""
        is_table = isinstance(self.data, FileDataConfig)
        client = self._file_rows.clients_without_inputs()[0] if is_table else self._client_of_study()
        client = self._perturbed(client)
        priors = client.priors[:, [self.classes.index(name) for name in classes]]
        return SiteTotals.of_client(replace(client, priors=priors), self.signature().columns)

    def client(self, spec: RunSpec, run: str, *, joins: bool = False) -> UnlabeledSets:
        """Return the site as a client of a run, with its rows as they were when it joined, even if files changed."""
        if isinstance(self.data, BenchmarkDataConfig):
            if spec.site_adjustment:
                raise InputError("site-adjustment: is for the files of a site, not for a data set by name.")
            return self._with_class_order(self._perturbed(self._client_of_study()), spec)
        sources = {"spec": _digest(spec.to_dict()), "data": self._data_digest()}
        with self.explain_state_errors():
            folder = self.run_folder(run)
            cached = read_row_cache(folder / ROW_CACHE, self.config.name)
        if cached is None:
            if not joins:
                log_warning(
                    f"the encoded rows of this run are missing in {folder}; they are made from the files again."
                )
            self._check_spec(spec)
            client = self._with_class_order(self._perturbed(self._file_rows.clients(spec.schema)[0]), spec)
            with self.explain_state_errors():
                if spec.site_adjustment:
                    client = adjust_site(client, spec, folder)
                write_row_cache(folder / ROW_CACHE, client, sources)
            return client
        client, before = cached
        if before.get("spec") != sources["spec"]:
            raise InputError("the coordinator has changed the spec of this run; let it start another run.")
        if before.get("data") != sources["data"]:
            log_warning("the site's files or settings have changed; this run continues with the rows it joined with.")
        return client

    def store(self, run: str) -> DiskStore:
        """Return the store of the client state of a run."""
        return DiskStore(self.run_folder(run) / CLIENT_STATES)

    @contextmanager
    def explain_state_errors(self) -> Iterator[None]:
        """Replace errors in this block, which reads or writes the state folder, by one that says what to do."""
        try:
            yield
        except (OSError, EnvironmentFailure) as problem:
            reason = str(problem).partition(";")[0]
            raise EnvironmentFailure(
                f"the state folder {self.config.state} cannot be used ({reason}); let the site's account write to it, "
                "free disk space, or choose another folder (state in the site's settings)."
            ) from None

    @cached_property
    def identity(self) -> SiteIdentity | None:
        """Name and key of the site, with the roster that it holds; None without a key."""
        return SiteIdentity.read(self.config)

    @property
    def state(self) -> Path:
        """The private state folder, created if needed."""
        return private_folder(Path(self.config.state))

    def run_folder(self, run: str) -> Path:
        """Return the private folder of a run, created if needed."""
        return private_folder(self.state / hashlib.sha256(run.encode()).hexdigest()[:16])

    @cached_property
    def _file_rows(self) -> FileRows:
        from fedul.data.files.load import read_file_rows

        assert isinstance(self.data, FileDataConfig)
        return read_file_rows(self.data, name=self.config.name)

    @cached_property
    def _study(self) -> Study:
        from fedul.data.load import load_study

        return load_study(self.data)

    def _client_of_study(self) -> UnlabeledSets:
        clients = {client.name: client for client in self._study.federation.clients}
        if self.config.name not in clients:
            raise InputError(f"site '{self.config.name}': the data set has {', '.join(clients)}; use one as name.")
        return clients[self.config.name]

    def _check_spec(self, spec: RunSpec) -> None:
        """Refuse a spec that asks for more than the site offers, such as columns that it ignores."""
        schema, offered = spec.schema, self.signature()
        if schema is not None and schema.shape != spec.input_shape:
            raise InputError("the coordinator's spec is inconsistent; it needs the same fedul as the site.")
        if problem := spec.mismatch(offered):
            raise InputError(f"the coordinator's spec does not fit the site's data: {problem}.")
        if isinstance(schema, TableSchema):
            if unknown := [name for name in schema.names if name not in offered.columns]:
                raise InputError(f"the coordinator asks for column '{unknown[0]}', which the site does not offer.")
            if any(isinstance(column, Number) and not 0 < column.deviation < math.inf for column in schema.columns):
                raise InputError("the coordinator's schema has a standard deviation that is not positive.")

    def _perturbed(self, client: UnlabeledSets) -> UnlabeledSets:
        """Return the client with perturbed class priors, if the site's settings ask for them."""
        with self.explain_state_errors():
            client, is_new = perturb_site(client, self.classes, self.config.prior_epsilon, self.state)
        if is_new:
            total = sum(draw.epsilon for draw in read_draws(self.state))
            log_warning(f"class priors are perturbed; all draws so far have epsilon {total:g} together.")
        return client

    def _with_class_order(self, client: UnlabeledSets, spec: RunSpec) -> UnlabeledSets:
        """Return the client with its class priors in the order of the spec."""
        order = [self.classes.index(name) for name in spec.classes]
        return replace(client, priors=client.priors[:, order])

    def _data_digest(self) -> str:
        """Return a digest of the data settings, and of the size and modification time of each file."""
        files = []
        for path in (self.data.data, self.data.priors or ""):
            for file in sorted(each for each in _find_files(Path(path).expanduser()) if each.is_file()):
                status = file.stat()
                files.append((str(file), status.st_size, status.st_mtime_ns))
        return _digest({"data": to_dict(self.data), "files": files})


def log_warning(message: str) -> None:
    """Write to the site's log; the coordinator does not receive it."""
    logging.getLogger("flwr").warning("fedul: %s", message)


def log_info(message: str) -> None:
    """Write what the site does to its log; the coordinator does not receive it."""
    logging.getLogger("flwr").info("fedul: %s", message)


def _find_files(path: Path) -> Iterable[Path]:
    """Return all files in a folder, a single file, or the files that match a pattern."""
    if path.is_dir():
        return path.rglob("*")
    return [path] if path.exists() else map(Path, glob.glob(str(path)))  # a file name may contain brackets


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
