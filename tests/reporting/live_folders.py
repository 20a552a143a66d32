"""Folders of runs as they are at some moment, as the processes of these runs write them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedul._utils.folder_lock import FolderLock
from fedul.core import RoundMetrics
from fedul.reporting.live.run_view import LiveFolder, RunView
from fedul.reporting.page import render_page
from fedul.training import run_files
from fedul.training.status import RunStatus, RunWarning, SiteStatus, SiteTable

from .pages import made_up

ROUNDS = 12
NO_REPLY = "no reply within 120 s"
SITES = (
    SiteStatus("north", "working", 0.0, 4.2, 3_400_000, 3_350_000),
    SiteStatus("south", "away", 0.0, 5.1, 2_900_000, 2_850_000, problem=NO_REPLY),
    SiteStatus("west", "ready", 0.0, 3.9, 3_400_000, 3_350_000, epsilon=1.25),
    SiteStatus("east", "refused", problem="column 'age' is missing"),
)


def rounds(count: int, **changes: Any) -> list[RoundMetrics]:
    """Return rounds whose losses fall; in round 3, the site south fails."""
    made = [
        RoundMetrics(
            i, 0.4 + 1.6 / i, 3, held_out_loss=0.5 + 1.7 / i, seconds=4.0, bytes_sent=10**6, bytes_received=10**6
        )
        for i in range(1, count + 1)
    ]
    return [replace(m, **{"site_errors": {"south": NO_REPLY} if m.round == 3 else {}, **changes}) for m in made]


def status(phase: Any = "training", sites: Sequence[SiteStatus] = SITES, **changes: Any) -> RunStatus:
    """Return the status of a run that began two minutes ago."""
    now = time.time()
    seen = [replace(site, last_seen=None if site.last_seen is None else now - 7) for site in sites]
    warning = RunWarning(now - 90, 2, "no site's priors alone tell all classes apart.")
    made = RunStatus(now - 120, now - 3, phase, ROUNDS, table=SiteTable(len(seen), seen), warnings=(warning,))
    return replace(made, **changes)


def write_run(
    folder: Path,
    history: Sequence[RoundMetrics] = (),
    status: RunStatus | None = None,
    *,
    finished: bool = False,
    across_sites: bool = True,
    report: bool = False,
) -> Path:
    """Write the documents of a run."""
    data = made_up()
    folder.mkdir(parents=True, exist_ok=True)
    record = replace(data.record, training=replace(data.record.training, rounds=ROUNDS))
    if across_sites:
        record = replace(record, data={})
        (folder / run_files.RUN_SPEC).write_text("{}")
    record.write(folder / run_files.CONFIG)
    if history:
        lines = "".join(json.dumps(metrics.to_dict()) + "\n" for metrics in history)
        (folder / run_files.METRICS).write_text(lines)
    if status is not None:
        (folder / run_files.STATUS).write_text(json.dumps(status.to_dict()))
    if finished:
        assert data.result is not None
        (folder / run_files.RESULT).write_text(json.dumps(data.result.to_dict()))
    if report:
        (folder / run_files.REPORT).write_text(render_page(data))
    return folder


@contextmanager
def going_on(folder: Path) -> Iterator[None]:
    """Lock a folder, as the process of its run does."""
    with FolderLock(folder) as acquired:
        assert acquired
        yield


def view(folder: Path) -> RunView:
    """Return what a folder says now."""
    return LiveFolder(folder).read()
