"""Trackers from options: `--track`, `--tracking-uri` and `--experiment`, or the settings of a coordinator."""

from __future__ import annotations

from fedul.config import TRACKERS, TrackingConfig
from fedul.tracking.tracker import Tracker


def make_trackers(config: TrackingConfig) -> list[Tracker]:
    """Return the tracker that options name, checked, in a list; an empty list if they name none.

    Parameters
    ----------
    config : TrackingConfig
        The options.

    Raises
    ------
    InputError
        If the tracker is not installed, or has no address.
    EnvironmentFailure
        If it cannot be reached.
    """
    if config.track is None:
        return []
    trackers = [_make(config)]
    for tracker in trackers:
        tracker.check()
    return trackers


def _make(config: TrackingConfig) -> Tracker:
    mlflow, tensorboard = TRACKERS
    if config.track == mlflow:
        from fedul.tracking.mlflow import MLflowTracker

        return MLflowTracker(config.tracking_uri, config.experiment)
    assert config.track == tensorboard
    from fedul.tracking.tensorboard import TensorBoardTracker

    return TensorBoardTracker(config.tracking_uri)
