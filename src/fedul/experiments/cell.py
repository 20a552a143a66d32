"""One cell of a table or figure of the paper: its place, the run that belongs to it, and the published numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedul._utils.settings import to_dict
from fedul.config import BenchmarkDataConfig, TrainConfig

Published = tuple[tuple[float, float], ...]
"""Mean and standard deviation as printed; one pair per client where a cell has several."""


@dataclass(frozen=True)
class Cell:
    """One value of every axis, and the run that belongs to it.

    Parameters
    ----------
    values : mapping of str to str
        Value by axis.
    data, training
        Configuration of the run; the seed is set for each run.
    published : tuple of (float, float)
        Published mean and standard deviation, one pair or one per client; empty if none was published.
    """

    values: Mapping[str, str]
    data: BenchmarkDataConfig
    training: TrainConfig
    published: Published = ()

    @property
    def place(self) -> tuple[str, ...]:
        """Values of all axes, which identify the cell in its table."""
        return tuple(self.values.values())

    def key(self, seed: int) -> str:
        """Return the name of the run with this seed; cells with the same settings, of any table, share their runs."""
        settings = [_given(replace(self.data, data_dir=None, seed=seed)), _given(replace(self.training, seed=seed))]
        for name in ("threads", "workers", "engine_mode", "device", "checkpoint_every"):
            settings[1].pop(name, None)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return f"{self.data.data}-{self.training.method}-{digest[:12]}"


def _given(config: BenchmarkDataConfig | TrainConfig) -> dict[str, Any]:
    """Return the settings that are not at their default, so that a setting of a later version does not change a key."""
    default = to_dict(type(config)())
    return {name: value for name, value in to_dict(config).items() if value != default[name]}
