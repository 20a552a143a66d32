"""Configuration classes: every option, with its default, help text, choices and range.

The fields are documented by their help texts, which `fedul train --help` prints. `fedul._utils.settings` reads and
validates them.
"""

from __future__ import annotations

from fedul.config.commands import (
    EXECUTOR_HELP,
    EXECUTORS,
    EXPORT_FORMATS,
    RAY_ADDRESS_HELP,
    SCALES,
    CompareConfig,
    RunConfig,
    check_executor,
    check_plot,
)
from fedul.config.data import BenchmarkDataConfig, FileDataConfig
from fedul.config.privacy import PrivacyOptions
from fedul.config.shared import IN_MEMORY, NOISE_FORMULAS, PRIOR_RECIPES, SCORES
from fedul.config.tracking import EXPERIMENT_HELP, TRACK_HELP, TRACKERS, TRACKING_URI_HELP, TrackingConfig
from fedul.config.training import GENERIC, TrainConfig

__all__ = [
    "EXECUTORS",
    "EXECUTOR_HELP",
    "EXPERIMENT_HELP",
    "EXPORT_FORMATS",
    "GENERIC",
    "IN_MEMORY",
    "NOISE_FORMULAS",
    "PRIOR_RECIPES",
    "RAY_ADDRESS_HELP",
    "SCALES",
    "SCORES",
    "TRACKERS",
    "TRACKING_URI_HELP",
    "TRACK_HELP",
    "BenchmarkDataConfig",
    "CompareConfig",
    "FileDataConfig",
    "PrivacyOptions",
    "RunConfig",
    "TrackingConfig",
    "TrainConfig",
    "check_executor",
    "check_plot",
]
