"""The folder of a run. Every file is complete or absent, so a run that is killed at any moment can be resumed.

`fedul.training.run_files` names the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from fedul._utils.display import counted
from fedul._utils.documents import read_document_file
from fedul._utils.files import as_path, remove_leftovers, write_bytes, write_json, write_problem
from fedul._utils.folder_lock import FolderLock
from fedul.classifier import Classifier
from fedul.core import RoundMetrics
from fedul.engines.client_store import DiskStore
from fedul.errors import InputError
from fedul.models import Model
from fedul.privacy.ledger import Ledger
from fedul.privacy.prior_noise import PerturbedPriors
from fedul.training import run_files
from fedul.training.choice import Choice
from fedul.training.perturbed_priors import write_perturbed
from fedul.training.result import RunResult
from fedul.training.run_record import RunRecord
from fedul.training.state import TrainingState, read_checkpoint, write_checkpoint

BEFORE_CONFIG = (run_files.PERTURBED_PRIORS, run_files.STATUS, run_files.TRACKING)
"""Files that a run may have before its record."""
LONGEST_NAME = 120
"""Characters of the name of a site's folder, beyond which it is cut."""


class RunBusy(InputError):
    """Another process is training this run."""


class RunFolder:
    """The files of one run.

    Parameters
    ----------
    path : str or Path
        The folder; it need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path, "run folder")
        self._identity = ""  # digest of what distinguishes this run from others
        self._is_locked = False  # by this object

    @contextmanager
    def opened(
        self, record: RunRecord, *, resume: bool, perturbed: PerturbedPriors | None = None
    ) -> Iterator[TrainingState | None]:
        """Prepare the folder for a run and yield the state to resume from, if there is one.

        A folder that holds something else is refused, and nothing in it is changed. Other processes are kept out until
        the end of the block.
        """
        self.check(record, resume=resume)
        self.make()
        with self.locked():
            self.check(record, resume=resume)  # again: it may have changed before it was locked
            if perturbed is not None:  # before the record, so that a run that is killed in between uses them too
                write_perturbed(self.path, perturbed)
            config = self.path / run_files.CONFIG
            before, self._has_saved = config.read_bytes() if config.exists() else None, False
            try:
                yield self._prepare(record)
            except InputError:
                if before is not None and not self._has_saved:  # a refused command changes nothing
                    write_bytes(config, before)
                raise

    def check_free(self) -> None:
        """Raise `RunBusy` while another process is training this run."""
        if self.path.is_dir():
            with self.locked():
                pass

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out until the end of the block, or raise `RunBusy`; blocks may be nested."""
        if self._is_locked:
            yield
            return
        with FolderLock(self.path) as acquired:
            if not acquired:
                raise RunBusy(
                    f"{self.path}: another process is training this run; wait for it, or choose another --out."
                )
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep other processes out while a run is prepared and trained; a folder that is still empty then is removed.

        Settings may be chosen for a while before the folder has a record of the run.
        """
        self._refuse_file()
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            with self.locked():
                yield
        finally:
            for folder in missing:
                with suppress(OSError):  # not empty, or it was not created
                    folder.rmdir()

    def make(self) -> None:
        """Create the folder, or raise why it cannot be created."""
        self._refuse_file()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InputError(
                f"{self.path}: cannot be created ({write_problem(problem)}); choose another --out."
            ) from None

    def _refuse_file(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: is a file; --out takes a folder.")

    def check(self, record: RunRecord, *, resume: bool) -> None:
        """Refuse a folder that holds something else than this run."""
        self._refuse_file()
        stored = self.stored_config()
        if stored is None:
            return
        if difference := stored.difference(record):
            raise InputError(f"{self.path}: holds a different run ({difference}); choose another --out.")
        if not resume:
            raise InputError(
                f"{self.path}: already holds a run with these settings; add --resume to continue it, or choose another "
                "--out."
            )

    def _prepare(self, record: RunRecord) -> TrainingState | None:
        self._identity = record.identity
        remove_leftovers(self.path)
        file = self.path / run_files.CHECKPOINT
        state = read_checkpoint(file, self._identity) if file.exists() else None
        if state is not None and state.round > record.training.rounds:
            raise InputError(
                f"{self.path}: already has {counted(state.round, 'round')}; ask for at least as many with --rounds."
            )
        if state is not None:  # a kill may have come between the checkpoint and the metrics
            self._write_metrics(state)
        stored = self.stored_config()
        if stored is not None and state is not None and state.round == record.training.rounds:
            # No round is trained, so those that there are keep what they were trained with.
            record = replace(record, training=replace(stored.training, rounds=record.training.rounds))
        record.write(self.path / run_files.CONFIG)  # with what a resumed run may change, such as the rounds
        return state

    def stored_config(self) -> RunRecord | None:
        """Return the record of the run in the folder; None if there is no run yet."""
        file = self.path / run_files.CONFIG
        if file.exists():
            return RunRecord.read(file)
        try:
            others = [p.name for p in self.path.iterdir()] if self.path.is_dir() else []
        except OSError as problem:
            raise InputError(f"{self.path}: cannot be read ({problem.strerror}); choose another folder.") from None
        if any(not name.startswith(".") and name not in BEFORE_CONFIG for name in others):
            raise InputError(
                f"{self.path}: is not empty and not a run of fedul (no {file.name} in it); choose another folder."
            )
        return None

    def save_state(self, state: TrainingState) -> None:
        """Write the checkpoint in one file, then the metrics."""
        self._has_saved = True
        write_checkpoint(self.path / run_files.CHECKPOINT, state, self._identity)
        self._write_metrics(state)
        for outdated in (run_files.RESULT, run_files.EVALUATION):  # they belong to an earlier classifier
            (self.path / outdated).unlink(missing_ok=True)

    def client_store(self) -> DiskStore:
        """Return the store of what methods and algorithms keep per client."""
        return DiskStore(self.path / run_files.CLIENT_STATES)

    def ledger(self) -> Ledger:
        """Return the ledger of what the rows of each client have paid for."""
        return Ledger(self.path / run_files.LEDGER)

    def client_ledger(self) -> Ledger:
        """Return the ledger of what each client as a whole has paid for."""
        return Ledger(self.path / run_files.CLIENT_LEDGER)

    def save_classifiers(self, classifier: Classifier, sites: Mapping[str, Classifier]) -> None:
        """Write the classifier of the selected round, and those of single sites, if there are any."""
        classifier.save(self.path / run_files.MODEL)
        for name, own in sites.items():
            own.save(self._site_folder(name))

    def _site_folder(self, site: str) -> Path:
        """Return the folder of a site's classifier; characters that are unsafe in file names are percent-encoded."""
        name = quote(site, safe=" ").replace(".", "%2E")
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(site.encode()).hexdigest()[:8]}"
        return self.path / run_files.SITE_MODELS / name

    def save_choice(self, choice: Choice) -> None:
        """Write which settings were chosen without labels."""
        write_json(self.path / run_files.CHOICE, choice.to_dict())

    def choice(self) -> Choice | None:
        """Return which settings were chosen without labels; None if there was no choice."""
        return read_document_file(Choice, self.path / run_files.CHOICE, "the run")

    def save_result(self, result: RunResult) -> None:
        """Write the result; its presence says that the run is finished."""
        write_json(self.path / run_files.RESULT, result.to_dict())

    def result(self) -> RunResult | None:
        """Return the result of a finished run; None if it is not finished."""
        return read_document_file(RunResult, self.path / run_files.RESULT, "the run")

    def history(self) -> list[RoundMetrics]:
        """Return the metrics of all rounds so far."""
        file = self.path / run_files.METRICS
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            return [RoundMetrics.from_dict(json.loads(line)) for line in lines]
        except (OSError, ValueError) as problem:
            raise InputError(
                f"{file}: cannot be read ({problem}); continue the run (--resume), which writes it again."
            ) from None

    def load_classifier(self, model: Model | None = None, site: str | None = None) -> Classifier:
        """Read the classifier of a finished run (or of a bare model folder), or the one of a single site."""
        if (self.path / run_files.CONFIG).exists():
            self.stored_config()  # refuses a run of another version
        if site is not None:
            if self._site_folder(site).is_dir():
                return Classifier.load(self._site_folder(site), model=model)
            classifier = self.load_classifier(model)
            if classifier.site_adjustments is None:
                raise InputError(
                    f"{self.path}: has no classifier of a site '{site}'; such are trained with --site-adjustment or "
                    "--algorithm fedbn."
                )
            return classifier.for_site(site)
        for folder in (self.path / run_files.MODEL, self.path):
            if (folder / "classifier.json").exists():
                return Classifier.load(folder, model=model)
        raise InputError(f"{self.path}: no classifier in it; give the folder of a finished run ('fedul train --out').")

    def _write_metrics(self, state: TrainingState) -> None:
        lines = "".join(json.dumps(metrics.to_dict()) + "\n" for metrics in state.history)
        write_bytes(self.path / run_files.METRICS, lines.encode())
