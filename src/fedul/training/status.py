"""Status of a run while it goes on: the document `status.json`, which `fedul watch` shows.

It repeats nothing that must not be lost: a run is resumed without it. It is written atomically and not synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedul._utils.documents import Document
from fedul.core.metrics import RoundMetrics

Phase = Literal["waiting", "choosing", "training", "finishing", "finished", "stopped", "failed"]
"""What a run does: it waits for sites, chooses settings, trains, evaluates and writes its result, or has ended."""

SiteState = Literal["ready", "working", "failed", "away", "refused", "private"]
"""What a site does: it waits for the next message, works on one, has failed to reply, is not connected, is refused by
the coordinator; or the run must not tell."""


@dataclass(frozen=True)
class SiteStatus(Document):
    """What is known of a site, or of a client that is trained in process.

    Parameters
    ----------
    name : str
        Its name.
    state : str
        What it does.
    last_seen : float or None
        Unix time of its last reply; None if there is none, or it is not known.
    seconds : float or None
        From the request to the reply of the last round that it trained.
    bytes_sent, bytes_received : int or None
        Tensors that were sent to it and received from it, since the process of the run began.
    problem : str
        Why it is refused or has failed.
    epsilon : float or None
        Epsilon of its rows so far; None if they are not protected, or it is not known here.
    """

    name: str
    state: SiteState
    last_seen: float | None = None
    seconds: float | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    problem: str = ""
    epsilon: float | None = None


@dataclass(frozen=True)
class RunWarning(Document):
    """One warning.

    Parameters
    ----------
    time : float
        When it came first.
    round : int
        The last round that was complete then.
    message : str
        What a user should know.
    """

    time: float
    round: int
    message: str


@dataclass(frozen=True)
class SiteTable(Document):
    """What is known of the sites of a run.

    Parameters
    ----------
    count : int
        Number of sites, or of clients in process.
    sites : sequence of SiteStatus
        Those of which more than the name is known; empty if there are too many.
    note : str
        Why something is not known of single sites; empty if all is.
    """

    count: int = 0
    sites: Sequence[SiteStatus] = ()
    note: str = ""


@dataclass(frozen=True)
class RunStatus(Document):
    """Status of a run, as the process that trains it last wrote it.

    Parameters
    ----------
    started, updated : float
        Unix times at which the process of the run began, and at which this was written.
    phase : str
        What the run does.
    rounds : int
        Rounds that it will have at its end; the most that it may have, if it has `patience`; 0 before this is known.
    patience : int
        Rounds without a selected one after which the run ends; 0 if it does not end early.
    resumed_after : int
        Rounds that were done when the process began; 0 for a run that was not resumed.
    latest : RoundMetrics or None
        The last complete round, which `metrics.jsonl` may not have yet.
    table : SiteTable
        The sites.
    warnings : sequence of RunWarning
        The latest warnings, each once, also of earlier processes of the run.
    warnings_left_out : int
        Earlier warnings that are not among them.
    problem : str
        Why the run failed.
    """

    started: float
    updated: float
    phase: Phase = "waiting"
    rounds: int = 0
    patience: int = 0
    resumed_after: int = 0
    latest: RoundMetrics | None = None
    table: SiteTable = SiteTable()
    warnings: Sequence[RunWarning] = ()
    warnings_left_out: int = 0
    problem: str = ""
