"""Algorithms: how client updates become the next global model. One file per algorithm, one line in the registry.

Other packages register algorithms as entry points of the group ``fedul.algorithms``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedul._utils.registry import Registry

if TYPE_CHECKING:
    from fedul.algorithms.base import Algorithm

ALGORITHMS: Registry[Algorithm] = Registry(
    "algorithm",
    {
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
    },
    "fedul.algorithms",
    "fedul.algorithms.base:Algorithm",
)


def make_algorithm(name: str, options: Mapping[str, Any]) -> Algorithm:
    """Build an algorithm by name.

    Parameters
    ----------
    name : str
        A name of `ALGORITHMS`.
    options : mapping of str to object
        Settings of the algorithm.
    """
    return ALGORITHMS.build(name, options)
