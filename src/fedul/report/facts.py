"""What the page of a run tells of: gathered from the run's folder and, where the data is at hand, its federation."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedul.classifier import FORMAT
from fedul.errors import InputError
from fedul.federation import Federation
from fedul.files import read_json
from fedul.report.judged import Check, Evaluation, check_of, evaluation_of
from fedul.runs import EVALUATION, RunFolder

AGREEMENT = "agreement.json"
"""What a run on real sites has in its folder, and no other run."""
TOO_LITTLE = "no site answered that had enough sets and held-out rows to judge by"


@dataclass(frozen=True)
class ClientFacts:
    """One client: how much it has, and what is known of its sets."""

    name: str
    rows: int
    sets: Sequence[str]
    priors: Sequence[Sequence[float]]  # (M, K)


@dataclass(frozen=True)
class Facts:
    """Everything on the page. What is None or empty was not there, and the page says how to get it."""

    run: str  # the folder, as the user named it
    config: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]] = ()
    result: Mapping[str, Any] | None = None  # None: the run is not finished
    classes: Sequence[str] = ()
    test_prior: Sequence[float] = ()
    temperature: float | None = None
    clients: Sequence[ClientFacts] | None = None  # None: the data is not at hand
    evaluation: Evaluation | None = None
    check: Check | None = None
    across_sites: bool = False  # the data is at real sites, and nothing on this side can have it

    @property
    def selected_round(self) -> int | None:
        return None if self.result is None else self.result.get("selected_round")

    @property
    def labels_used(self) -> int | None:
        return None if self.result is None else self.result.get("labels_used")

    @property
    def evaluate_command(self) -> str:
        """What gives the estimates that need no labels."""
        return f"fedul evaluate {shlex.quote(self.run)}"

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Rows and clients; None where nothing says."""
        counted = self.clients or (self.check.clients if self.check else None)
        return (sum(client.rows for client in counted), len(counted)) if counted else None


def facts_of(run: RunFolder, federation: Federation | None = None) -> Facts:
    """The facts of a run; with its federation, those that stay with the clients too."""
    config = run.stored_config() if (run.path / "config.json").exists() else None
    if config is None:
        raise InputError(f"{run.path}: no run in it; give the folder of a run ('fedul train --out').")
    described = _classifier(run)
    known = federation.classes if federation else ()
    return Facts(
        run=str(run.path),
        config=config,
        history=_history(run),
        result=run.result(),
        classes=tuple(described.get("classes", known)),
        test_prior=tuple(described.get("trained_prior", federation.test_prior.tolist() if federation else ())),
        temperature=described.get("temperature"),
        clients=None if federation is None else _clients(federation),
        evaluation=evaluation_of(run.path / EVALUATION),
        check=check_of(run.path / "check.json"),
        across_sites=(run.path / AGREEMENT).exists(),
    )


def _history(run: RunFolder) -> Sequence[Mapping[str, Any]]:
    file = run.path / "metrics.jsonl"
    lines = run.history() if file.exists() else []
    if not all(isinstance(line, dict) and "round" in line for line in lines):
        raise InputError(f"{file}: damaged; go on with the run (--resume), which writes it again.")
    return lines


def _classifier(run: RunFolder) -> Mapping[str, Any]:
    """What the classifier says of itself; its weights are not needed, so a network of the user's own is not either."""
    file = run.path / "model" / "classifier.json"
    if not file.exists():
        return {}
    described = read_json(file)
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise InputError(f"{file}: not a classifier of fedul; restore a copy of it.")
    return described


def _clients(federation: Federation) -> tuple[ClientFacts, ...]:
    return tuple(
        ClientFacts(client.name, len(client.train) + len(client.held_out), client.set_names, client.priors.tolist())
        for client in federation.clients
    )
