"""Data of the report: gathered from a run in memory or from its folder, and its federation where that is available."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedul._utils.documents import read_document_file
from fedul._utils.files import read_json
from fedul.auditing.document import AuditResult
from fedul.core import Federation, RoundMetrics
from fedul.data.files.classifier_file import DESCRIPTION, FORMAT
from fedul.errors import FedulError, InputError
from fedul.evaluation.check import check
from fedul.evaluation.check_result import CheckResult
from fedul.evaluation.document import Evaluation
from fedul.training import Callback, Run, RunFolder, RunRecord, RunResult
from fedul.training.run_data import load_run_data
from fedul.training.run_files import AUDIT, CHECK, CONFIG, EVALUATION, METRICS, MODEL, RUN_SPEC


@dataclass(frozen=True)
class ClientSummary:
    """One client: its rows, the names of its sets, and their class priors (M, K)."""

    name: str
    rows: int
    sets: Sequence[str]
    priors: Sequence[Sequence[float]]


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows. For what is None or empty, the page says how to get it.

    Parameters
    ----------
    run : str
        The run folder as the user named it.
    record : RunRecord
        Configuration of the run.
    history : sequence of RoundMetrics
        Metrics of the rounds so far.
    result : RunResult or None
        None if the run is not finished.
    classes, test_prior : sequence
        Names of the classes, and the class mix of the target population.
    temperature : float or None
        Temperature of the delivered probabilities.
    clients : sequence of ClientSummary or None
        None if the data is not available.
    evaluation : Evaluation or None
        Result of `fedul.evaluate`.
    check : CheckResult or None
        Result of `fedul.check`.
    audit : AuditResult or None
        Result of `fedul.audit`.
    across_sites : bool
        Whether the data is at real sites and cannot be available here.
    """

    run: str
    record: RunRecord
    history: Sequence[RoundMetrics] = ()
    result: RunResult | None = None
    classes: Sequence[str] = ()
    test_prior: Sequence[float] = ()
    temperature: float | None = None
    clients: Sequence[ClientSummary] | None = None
    evaluation: Evaluation | None = None
    check: CheckResult | None = None
    audit: AuditResult | None = None
    across_sites: bool = False

    @property
    def selected_round(self) -> int | None:
        """Round that is delivered."""
        return None if self.result is None else self.result.selected_round

    @property
    def labels_used(self) -> int | None:
        """Labels that training used."""
        return None if self.result is None else self.result.labels_used

    @property
    def evaluate_command(self) -> str:
        """Command that gives the estimates without labels."""
        return f"fedul evaluate {shlex.quote(self.run)}"

    @property
    def audit_command(self) -> str:
        """Command that attacks the configuration."""
        return f"fedul federation audit {shlex.quote(self.run)}"

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Rows and clients, if known."""
        counted = self.clients or (self.check.clients if self.check else None)
        return (sum(client.rows for client in counted), len(counted)) if counted else None

    @property
    def missing(self) -> list[str]:
        """Parts that the page does not have."""
        parts = {"priors": self.clients, "evaluation": self.evaluation, "check": self.check}
        return [name for name, part in parts.items() if part is None]


def collect_run(run: Run, evaluation: Evaluation | None = None) -> ReportData:
    """Collect the data of a run in memory; what its folder holds, if it has one, is used too."""
    if run.record is None:
        raise InputError("this run has no record of its configuration; give the folder of the run.")
    stored = None if run.folder is None else collect_folder(RunFolder(run.folder))
    federation, classifier = None if run.study is None else run.study.federation, run.classifier
    return ReportData(
        run="run" if run.folder is None else str(run.folder),
        record=run.record,
        history=run.history,
        result=run.result,
        classes=tuple(classifier.classes),
        test_prior=tuple(classifier.trained_prior.tolist()),
        temperature=classifier.temperature,
        clients=_summarize_clients(federation),
        evaluation=evaluation or (stored.evaluation if stored else None),
        check=None if run.study is None else check(run.study),
        audit=stored.audit if stored else None,
    )


def collect_folder(run: RunFolder, federation: Federation | None = None) -> ReportData:
    """Collect the data of a run folder; with its federation, also what stays with the clients."""
    record = run.stored_config() if (run.path / CONFIG).exists() else None
    if record is None:
        raise InputError(f"{run.path}: no run in it; give the folder of a run ('fedul train --out').")
    described, prior = _describe_classifier(run), () if federation is None else federation.test_prior.tolist()
    return ReportData(
        run=str(run.path),
        record=record,
        history=run.history() if (run.path / METRICS).exists() else (),
        result=run.result(),
        classes=tuple(described.get("classes", federation.classes if federation else ())),
        test_prior=tuple(described.get("trained_prior", prior)),
        temperature=described.get("temperature"),
        clients=_summarize_clients(federation),
        evaluation=read_document_file(Evaluation, run.path / EVALUATION, "'fedul evaluate'"),
        check=read_document_file(CheckResult, run.path / CHECK, "'fedul evaluate'"),
        audit=read_document_file(AuditResult, run.path / AUDIT, "'fedul federation audit'"),
        across_sites=(run.path / RUN_SPEC).exists(),
    )


def _describe_classifier(run: RunFolder) -> Mapping[str, Any]:
    """Read the description only: without weights, a report needs no custom model."""
    file = run.path / MODEL / DESCRIPTION
    described = read_json(file) if file.exists() else {"format": FORMAT}
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise InputError(f"{file}: not a classifier of fedul; restore a copy of it.")
    return described


def load_federation(
    record: RunRecord, folder: Path, callback: Callback, *, data: Any = None, priors: Any = None
) -> Federation | None:
    """Return the federation that a run was trained on, if its data is still there and unchanged; else warn.

    Data or priors that are named and are not those of the run are an error. That of real sites is never there.
    """
    if (folder / RUN_SPEC).exists() and data is None and priors is None:
        return None
    try:
        return load_run_data(record, folder, data=data, priors=priors).federation
    except FedulError as problem:
        if data is not None or priors is not None:
            raise
        callback.on_warning(f"the page has no class priors: {problem}")
        return None


def _summarize_clients(federation: Federation | None) -> tuple[ClientSummary, ...] | None:
    if federation is None:
        return None
    return tuple(
        ClientSummary(client.name, len(client.train) + len(client.held_out), client.set_names, client.priors.tolist())
        for client in federation.clients
    )
