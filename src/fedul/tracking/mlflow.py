"""MLflow: a run of fedul is a run of MLflow, with its settings, a series for every metric, and its files.

Only the client of MLflow is needed (``mlflow-skinny``). Its telemetry is switched off, and it contacts only the
tracking server that the user names, with few repetitions, so that a server that is gone does not hold up training.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul.config.tracking import resolve_uri
from fedul.core import RoundMetrics
from fedul.errors import EnvironmentFailure, InputError
from fedul.tracking.files import result_files, stored_evaluation
from fedul.tracking.run_id import read_run_id, write_run_id
from fedul.tracking.tracker import Series, Tracker, unreachable, without_password
from fedul.tracking.values import parameters, result_values, round_values
from fedul.training import RunFolder, RunInfo, RunRecord, RunResult

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

EXPERIMENT = "fedul"
"""Experiment of runs without --experiment."""
IMPATIENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""Settings of MLflow's requests that the user has not given; by default it tries for minutes."""
BATCH = 1000
"""Metrics, and 100 parameters, that a request may have."""
LAST = "seconds"
"""Metric of a round that is sent with the last request, so that a round that has it is complete."""
FINAL = "final/rounds"
"""Metric of the result that is sent with its last request."""


class MLflowTracker(Tracker):
    """Records runs in MLflow; needs the extra ``fedul[mlflow]``.

    Parameters
    ----------
    tracking_uri : str or Path, optional
        Address of a tracking server (``http://HOST:PORT``), of a database (``sqlite:///runs.db``), or an SQLite file
        (``runs.db``). Default: the variable ``MLFLOW_TRACKING_URI``. There is no other default: nothing is contacted
        that is not named.
    experiment : str, default="fedul"
        Experiment, which is created if there is none.
    artifacts : bool, default=True
        Whether files of finished runs are recorded too: classifier, report, model card, configuration and metrics.

    Raises
    ------
    InputError
        If no address is given, or it is none; or MLflow is not installed.

    Examples
    --------
    >>> import fedul, tempfile
    >>> tracker = fedul.MLflowTracker(f"{tempfile.mkdtemp()}/runs.db")
    >>> tracker.experiment
    'fedul'
    """

    title = "MLflow"

    def __init__(
        self, tracking_uri: str | Path | None = None, experiment: str | None = None, *, artifacts: bool = True
    ) -> None:
        super().__init__()
        self.uri = resolve_uri(tracking_uri)
        self.experiment, self._artifacts = experiment or EXPERIMENT, artifacts
        _require_mlflow()
        self._client: MlflowClient | None = None
        self._experiment_id = ""

    def connect(self) -> None:
        with _quiet():
            try:
                self._client = _make_client(self.uri)
                self._experiment_id = self._find_experiment(self._client)
            except Exception as problem:
                raise unreachable(self.title, without_password(self.uri), problem) from None

    def open(self, run: RunInfo) -> Series:
        assert self._client is not None
        place = without_password(self.uri)
        with _quiet():
            run_id = None if run.folder is None else read_run_id(run.folder, place)
            if run_id is not None and _exists(self._client, run_id):
                self._client.update_run(run_id, "RUNNING")
                return _MLflowRun(self._client, run_id, artifacts=self._artifacts)
            name = run.title or (run.folder.resolve().name if run.folder else None)
            tags = {"fedul.folder": str(run.folder.resolve())} if run.folder else {}
            created = self._client.create_run(self._experiment_id, tags=tags, run_name=name)
            if run.folder is not None:
                write_run_id(run.folder, place, created.info.run_id)
            return _MLflowRun(self._client, created.info.run_id, artifacts=self._artifacts)

    def _find_experiment(self, client: MlflowClient) -> str:
        """Return the ID of the experiment, which is created if there is none; a deleted one is an error."""
        found = client.get_experiment_by_name(self.experiment)
        if found is not None and found.lifecycle_stage == "active":
            return str(found.experiment_id)
        if found is not None:
            raise EnvironmentFailure(f"experiment '{self.experiment}' was deleted; restore it, or name another")
        place = None
        if self.uri.startswith("sqlite:///"):  # by default below the working directory, whichever that is
            place = (Path(self.uri.removeprefix("sqlite:///")).parent / "mlartifacts" / self.experiment).as_uri()
        return str(client.create_experiment(self.experiment, artifact_location=place))


class _MLflowRun(Series):
    """One run at MLflow."""

    def __init__(self, client: MlflowClient, run_id: str, *, artifacts: bool) -> None:
        self._client, self._id, self._artifacts = client, run_id, artifacts
        self._done: dict[str, int] = {}  # by name of a metric, the last step that is there

    def write_parameters(self, record: RunRecord) -> None:
        from mlflow.entities import Param, RunTag

        with _quiet():
            wanted, there = parameters(record), self._client.get_run(self._id).data.params
            new = [Param(name, value[:6000]) for name, value in wanted.items() if name not in there]
            for start in range(0, len(new), 100):
                self._client.log_batch(self._id, params=new[start : start + 100])
            # MLflow does not let a parameter change; a resumed run may have more rounds.
            changed = {name: value for name, value in wanted.items() if there.get(name, value[:6000]) != value[:6000]}
            self._client.log_batch(
                self._id, tags=[RunTag(f"fedul.now.{name}", value) for name, value in changed.items()]
            )

    def write_rounds(self, rounds: Sequence[RoundMetrics]) -> None:
        for metrics in rounds:
            self._write(metrics.round, round_values(metrics), LAST)

    def write_result(self, result: RunResult, folder: RunFolder | None) -> None:
        evaluation = None if folder is None else stored_evaluation(folder)
        self._write(result.rounds, result_values(result, evaluation), FINAL)
        with _quiet():
            self._client.set_tag(self._id, "fedul.stopped", result.stopped or "")
            if self._artifacts and folder is not None:
                with result_files(folder) as files:
                    for file in files:
                        into = file.name if file.is_dir() else None
                        log = self._client.log_artifacts if file.is_dir() else self._client.log_artifact
                        log(self._id, str(file), into)

    def close(self, failure: BaseException | None) -> None:
        with _quiet():
            if failure is not None:
                self._client.set_tag(self._id, "fedul.failure", f"{type(failure).__name__}: {failure}"[:5000])
            status = "FINISHED" if failure is None else "FAILED" if isinstance(failure, Exception) else "KILLED"
            self._client.set_terminated(self._id, status)

    def abandon(self) -> None:
        """Do nothing: the process that trains the run closes it."""

    def _write(self, step: int, values: Mapping[str, float], last: str) -> None:
        """Write the metrics of a step, unless they are there; the request that comes last has the metric `last`."""
        from mlflow.entities import Metric

        with _quiet():
            if last not in self._done:
                history = self._client.get_metric_history(self._id, last)
                self._done[last] = max((metric.step for metric in history), default=-1)
            if step <= self._done[last]:
                return
            now = int(time.time() * 1000)
            ordered = [*(name for name in values if name != last), last]
            metrics = [Metric(name, values[name], now, step) for name in ordered]
            for start in range(0, len(metrics), BATCH):
                self._client.log_batch(self._id, metrics=metrics[start : start + BATCH])
            self._done[last] = step


def _require_mlflow() -> None:
    """Import MLflow without its telemetry; InputError if it is not installed."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # read when it is imported
    was_imported = "mlflow" in sys.modules
    try:
        import mlflow  # noqa: F401
    except ImportError:
        raise InputError("MLflow is not installed; install fedul with it: pip install 'fedul[mlflow]'.") from None
    if was_imported:  # by the user, with telemetry that has begun
        from mlflow.telemetry.client import set_telemetry_client

        set_telemetry_client()  # type: ignore[no-untyped-call]


def _make_client(uri: str) -> MlflowClient:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _exists(client: MlflowClient, run_id: str) -> bool:
    """Return whether a run is still there; any other problem is raised."""
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run_id).info.lifecycle_stage == "active")
    except MlflowException as problem:
        if problem.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Context in which MLflow gives up soon, and what it logs or warns about its own libraries is not shown."""
    added = {name: value for name, value in IMPATIENT.items() if name not in os.environ}
    loggers: list[Any] = [logging.getLogger(name) for name in ("mlflow", "mlflow.store.db.utils", "alembic")]
    levels = [logger.level for logger in loggers]
    os.environ.update(added)
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in added:
            os.environ.pop(name, None)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
