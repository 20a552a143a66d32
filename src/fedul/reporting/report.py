"""`fedul.report`: one HTML page about a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedul._utils.files import as_path, write_bytes
from fedul.errors import InputError
from fedul.evaluation.document import Evaluation
from fedul.evaluation.run_target import as_run_folder
from fedul.reporting.page import render_page
from fedul.reporting.report_data import ReportData, collect_folder, collect_run, load_federation
from fedul.training import Callback, CallbackList, Run, RunFolder
from fedul.training.run_files import REPORT

PARTS = {
    "evaluation": ("an evaluation", "run 'fedul evaluate {run}' first"),
    "priors": ("class priors", "name the data with --data and --priors"),
    "check": ("the result of check", "run 'fedul evaluate {run}' first"),
}
"""Parts that a page may lack: what they are, and how to get them."""

MARK = "parts of this fedul report"
TAIL_BYTES = 1000
"""Bytes at the end of a page that hold the mark."""


def report(
    run: Run | RunFolder | str | Path,
    out: str | Path | None = None,
    *,
    evaluation: Evaluation | None = None,
    data: Any = None,
    priors: Any = None,
    force: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Path:
    """Write a page about a run: one HTML file that needs no network.

    Parameters
    ----------
    run : Run, RunFolder or path
        What `fedul.train` returned, or a run folder. The run need not be finished.
    out : str or Path, optional
        The file to write; without it, `report.html` in the run folder.
    evaluation : Evaluation, optional
        What `fedul.evaluate` returned, for a run without a folder. A folder holds it already.
    data, priors : str, Path or DataFrame, optional
        Where the data and class priors of the run are now, if they have moved.
    force : bool, default=False
        Replace a report that has more than the new one, or a file that is not a report.
    callbacks : sequence of Callback
        Their `on_warning` is called if parts of the page cannot be had. Without one, warnings are Python's own.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If the file is a report that has a part which the new one would not have, or is not a report.

    Examples
    --------
    >>> import fedul, tempfile
    >>> run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, seed=0)
    >>> fedul.report(run, f"{tempfile.mkdtemp()}/report.html").name
    'report.html'
    """
    file = as_run_folder(run).path / REPORT if out is None else as_path(out, "out")
    collected = collect(run, evaluation=evaluation, data=data, priors=priors, callbacks=callbacks)
    return write_page(collected, file, force=force)


def collect(
    run: Run | RunFolder | str | Path,
    *,
    evaluation: Evaluation | None = None,
    data: Any = None,
    priors: Any = None,
    callbacks: Sequence[Callback] = (),
) -> ReportData:
    """Collect the data of the page from a run in memory, or from its folder and the data it records."""
    if isinstance(run, Run) and run.record is not None:
        return collect_run(run, evaluation)
    folder = as_run_folder(run)
    record = collect_folder(folder).record  # a damaged folder is refused before its data is loaded
    federation = load_federation(record, folder.path, CallbackList(callbacks), data=data, priors=priors)
    return collect_folder(folder, federation)


def write_page(data: ReportData, file: Path, *, force: bool = False) -> Path:
    """Write the page to a file, and return the file.

    Without `force`, a report that has a part which the new one does not have is not replaced, nor another file.
    """
    parts = [name for name in PARTS if name not in data.missing]
    if file.is_file() and not force:
        _check_replaceable(file, data)
    write_bytes(file, f"{render_page(data)}\n<!-- {MARK}: {' '.join(parts) or 'none'} -->\n".encode())
    return file


def _check_replaceable(file: Path, data: ReportData) -> None:
    with file.open("rb") as page:
        page.seek(max(0, file.stat().st_size - TAIL_BYTES))
        tail = page.read().decode("utf-8", "replace")
    found = re.search(rf"<!-- {MARK}: ([a-z ]*) -->", tail)
    if found is None:
        raise InputError(f"{file}: exists and is not a report; choose another --out, or replace it with --force.")
    if lost := [name for name in found[1].split() if name in data.missing]:
        what, how = PARTS[lost[0]]
        raise InputError(
            f"{file}: has {what}, which the new report would not have; {how.format(run=shlex.quote(data.run))}, choose "
            "another --out, or replace it with --force."
        )
