"""`fedul.report`: one HTML page about a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedul._utils.files import as_path, write_bytes
from fedul.evaluation.document import Evaluation
from fedul.evaluation.evaluate import as_run_folder
from fedul.reporting.page import render_page
from fedul.reporting.report_data import ReportData, collect_folder, collect_run, load_federation
from fedul.training import Callback, CallbackList, Run, RunFolder
from fedul.training.run_files import REPORT


def report(
    run: Run | RunFolder | str | Path,
    out: str | Path | None = None,
    *,
    evaluation: Evaluation | None = None,
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
    callbacks : sequence of Callback
        Their `on_warning` is called if parts of the page cannot be had. Without one, warnings are Python's own.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import fedul, tempfile
    >>> run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, seed=0)
    >>> fedul.report(run, f"{tempfile.mkdtemp()}/report.html").name
    'report.html'
    """
    file = as_run_folder(run).path / REPORT if out is None else as_path(out, "out")
    return write_page(collect(run, evaluation=evaluation, callbacks=callbacks), file)


def collect(
    run: Run | RunFolder | str | Path, *, evaluation: Evaluation | None = None, callbacks: Sequence[Callback] = ()
) -> ReportData:
    """Collect the data of the page from a run in memory, or from its folder and the data it records."""
    if isinstance(run, Run) and run.record is not None:
        return collect_run(run, evaluation)
    folder = as_run_folder(run)
    record = collect_folder(folder).record  # a damaged folder is refused before its data is loaded
    return collect_folder(folder, load_federation(record, CallbackList(callbacks)))


def write_page(data: ReportData, file: Path) -> Path:
    """Write the page to a file, and return the file."""
    write_bytes(file, render_page(data).encode())
    return file
