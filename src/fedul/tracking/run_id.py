"""The document `tracking.json` in a run folder: by which names trackers know the run, so that it can be continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedul._utils.documents import Document, read_document_file
from fedul._utils.files import write_json
from fedul.training.run_files import TRACKING


@dataclass(frozen=True)
class TrackedAs(Document):
    """Where trackers record a run.

    Parameters
    ----------
    mlflow : mapping of str to str
        By address of a server or a database, the ID of the MLflow run.
    """

    mlflow: Mapping[str, str] = field(default_factory=dict)


def read_run_id(folder: Path, place: str) -> str | None:
    """Return the ID of the MLflow run in which a run is recorded at this place; None if it is not."""
    stored = read_document_file(TrackedAs, folder / TRACKING, "the run")
    return None if stored is None else stored.mlflow.get(place)


def write_run_id(folder: Path, place: str, run_id: str) -> None:
    """Record the ID of the MLflow run in which a run is recorded at this place."""
    stored = read_document_file(TrackedAs, folder / TRACKING, "the run") or TrackedAs()
    write_json(folder / TRACKING, replace(stored, mlflow={**stored.mlflow, place: run_id}).to_dict())
