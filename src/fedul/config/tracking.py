"""Options of trackers, of commands that train and of coordinators."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from fedul._utils.settings import option, validate_fields
from fedul.errors import InputError

TRACKERS = ("mlflow", "tensorboard")
"""Where runs may be recorded."""

URI_VARIABLE = "MLFLOW_TRACKING_URI"
"""Environment variable in which MLflow itself finds its server."""
SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
OTHERS = ("databricks", "file")
"""Further places that MLflow knows, and fedul passes on."""

TRACK_HELP = "Record runs while they are trained, in MLflow or for TensorBoard."
TRACKING_URI_HELP = (
    "Where they are recorded. mlflow: http://HOST:PORT or a file RUNS.db (default: the variable MLFLOW_TRACKING_URI); "
    "tensorboard: a folder (default: tensorboard in the run folder)."
)
EXPERIMENT_HELP = "Experiment of MLflow (default: fedul)."

track_option = partial(option, None, TRACK_HELP, choices=TRACKERS)
tracking_uri_option = partial(option, None, TRACKING_URI_HELP)
experiment_option = partial(option, None, EXPERIMENT_HELP)


@dataclass(frozen=True)
class TrackingConfig:
    """Whether and where runs are recorded."""

    track: str | None = track_option()
    tracking_uri: str | None = tracking_uri_option()
    experiment: str | None = experiment_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        check_tracking(self.track, self.tracking_uri, self.experiment)


def check_tracking(track: str | None, tracking_uri: str | None, experiment: str | None) -> None:
    """Raise InputError for options of a tracker that is not used."""
    if track is None and (tracking_uri or experiment):
        name = "tracking-uri" if tracking_uri else "experiment"
        raise InputError(f"{name}: is for a tracker; add track ({' or '.join(TRACKERS)}), or leave it out.")
    if experiment and track != TRACKERS[0]:
        raise InputError(f"experiment: is for {TRACKERS[0]}; leave it out.")
    if track == TRACKERS[0]:
        resolve_uri(tracking_uri)
    elif track == TRACKERS[1] and "://" in (tracking_uri or ""):
        raise InputError(f"tracking-uri: '{tracking_uri}' is no folder, and {track} takes one.")


def resolve_uri(given: str | Path | None) -> str:
    """Return the address of a tracking server or a database; a file is an SQLite database.

    Without an address it is that of the environment variable of MLflow; there is no other default.

    >>> resolve_uri("http://127.0.0.1:5000")
    'http://127.0.0.1:5000'
    >>> resolve_uri("ftp://example.org")
    Traceback (most recent call last):
    fedul.errors.InputError: tracking-uri: 'ftp://example.org' is no address of MLflow; give http://HOST:PORT, \
sqlite:///FILE.db or FILE.db.
    """
    given = given or os.environ.get(URI_VARIABLE)
    if not given:
        raise InputError(
            "tracking-uri: track mlflow needs the address of a server or a file (http://HOST:PORT, runs.db); give it, "
            f"or set the variable {URI_VARIABLE}."
        )
    text = str(given)
    scheme = re.match(r"([A-Za-z][\w+]+):", text)
    kind = scheme[1].lower().partition("+")[0] if scheme else ""
    if kind in SERVERS and urlsplit(text).hostname:
        return text
    if kind in DATABASES or kind in OTHERS or text == "databricks":
        path = text.removeprefix("sqlite:///")
        return text if path == text else f"sqlite:///{Path(path).resolve()}"
    if not kind and Path(text).suffix in (".db", ".sqlite", ".sqlite3"):
        return f"sqlite:///{Path(text).expanduser().resolve()}"
    raise InputError(
        f"tracking-uri: '{text}' is no address of MLflow; give http://HOST:PORT, sqlite:///FILE.db or FILE.db."
    )
