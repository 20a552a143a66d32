"""JSON-lines logger: everything that callbacks see of runs, one JSON document per line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from fedul._utils.files import as_path, write_problem
from fedul.core import RoundMetrics
from fedul.errors import EnvironmentFailure, first_line
from fedul.training import Callback, RunInfo, RunResult


class JsonLinesLogger(Callback):
    """Appends a line to a file for every start, round and end of a run.

    Every line has `time` (Unix time), `event` ("start", "round" or "end") and `run`, the title or folder of the run. A
    round has the keys of ``metrics.jsonl``. A round that a resumed run trains again has a second line, which replaces
    the first.

    Parameters
    ----------
    path : str or Path
        The file; what it holds is kept.

    Raises
    ------
    EnvironmentFailure
        If the file cannot be written at the start. Later, training goes on with one warning.

    Examples
    --------
    >>> import fedul, json, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> data = fedul.load("digits", clients=2, rows=400)
    >>> run = fedul.train(data, method="fedul", rounds=2, seed=0, callbacks=[fedul.JsonLinesLogger(file)])
    >>> [json.loads(line)["event"] for line in file.read_text().splitlines()]
    ['start', 'round', 'round', 'end']
    """

    def __init__(self, path: str | Path) -> None:
        self._path = as_path(path, "path")
        self._began = self._has_warned = False

    def on_run_start(self, run: RunInfo) -> None:
        if run.role != "choice":
            self._write(run, "start", rounds=run.rounds, resumed_after=len(run.history), role=run.role)

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        if run.role != "choice":
            self._write(run, "round", **metrics.to_dict())

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        if run.role != "choice":
            failure = None if run.failure is None else first_line(run.failure)
            self._write(run, "end", result=None if result is None else result.to_dict(), failure=failure)

    def _write(self, run: RunInfo, event: str, **values: Any) -> None:
        name = run.title or (str(run.folder) if run.folder else "")
        line = json.dumps({"time": round(time.time(), 3), "event": event, "run": name, **values}, ensure_ascii=False)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as problem:
            text = f"{self._path}: cannot be written ({write_problem(problem)})"
            if not self._began:
                raise EnvironmentFailure(f"{text}; name another file.") from None
            if not self._has_warned:
                self._has_warned = True
                run.warn(f"{text}; training goes on.")
        self._began = True
