"""Algorithms: how client updates become the next global model. One file an algorithm, one line in the registry."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedul.errors import unknown
from fedul.settings import make_part

if TYPE_CHECKING:
    from fedul.algorithms.base import Algorithm

ALGORITHMS = {
    "fedavg": "fedul.algorithms.fedavg:FedAvg",
    "fedprox": "fedul.algorithms.fedprox:FedProx",
    "fednova": "fedul.algorithms.fednova:FedNova",
    "scaffold": "fedul.algorithms.scaffold:Scaffold",
    "fedbn": "fedul.algorithms.fedbn:FedBN",
    "fedavgm": "fedul.algorithms.fedavgm:FedAvgM",
    "fedadam": "fedul.algorithms.fedadam:FedAdam",
    "fedyogi": "fedul.algorithms.fedyogi:FedYogi",
    "median": "fedul.algorithms.median:Median",
    "trimmed-mean": "fedul.algorithms.trimmed_mean:TrimmedMean",
}


def make_algorithm(name: str, options: Mapping[str, Any]) -> Algorithm:
    """The algorithm of this name."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    module, _, kind = ALGORITHMS[name].partition(":")
    algorithm: Algorithm = make_part(getattr(import_module(module), kind), options, f"algorithm {name}")
    return algorithm
