"""Options of trackers, of commands that train and of coordinators."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fedul._utils.settings import option, validate_fields
from fedul.errors import InputError

TRACKERS = ("mlflow", "tensorboard")
"""Where runs may be recorded."""

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
