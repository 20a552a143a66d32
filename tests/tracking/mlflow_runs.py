"""What MLflow has of runs, read with its own client."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fedul.errors import InputError


class Store:
    """Runs at an address of MLflow."""

    def __init__(self, uri: str) -> None:
        from mlflow.tracking import MlflowClient

        self.uri = uri
        self.client = MlflowClient(uri, registry_uri=uri)

    def runs(self) -> dict[str, Any]:
        """Return all runs by name."""
        experiments = [each.experiment_id for each in self.client.search_experiments()]
        found = list(self.client.search_runs(experiments))
        by_name = {run.info.run_name: run for run in found}
        assert len(by_name) == len(found)
        return by_name

    def series(self, run: Any, name: str) -> list[tuple[int, float]]:
        """Return the steps and values of a metric."""
        return [(metric.step, metric.value) for metric in self.client.get_metric_history(run.info.run_id, name)]

    def steps(self, run: Any, name: str) -> list[int]:
        """Return the steps of a metric."""
        return [step for step, _ in self.series(run, name)]

    def files(self, run: Any) -> set[str]:
        """Return the names of the artifacts of a run."""
        return {artifact.path for artifact in self.client.list_artifacts(run.info.run_id)}


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database of MLflow without runs; to make one takes seconds."""
    from fedul import MLflowTracker

    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    try:
        tracker = MLflowTracker(file, "unused")
    except InputError:
        pytest.skip("the extra fedul[mlflow] is not installed")
    tracker.check()
    return file


@pytest.fixture
def store(empty_database: Path, tmp_path: Path) -> Store:
    """Return an empty database in the folder of the test."""
    return Store(f"sqlite:///{shutil.copy(empty_database, tmp_path / 'runs.db')}")
