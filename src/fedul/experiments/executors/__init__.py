"""Executors: where the runs of a grid are trained. `base` has the protocol; every other module is one executor."""

from __future__ import annotations

from collections.abc import Callable

from fedul._utils.hardware import available_cores
from fedul.errors import unknown_name
from fedul.experiments.executors.base import Executor
from fedul.experiments.executors.processes import ProcessExecutor
from fedul.experiments.executors.ray import RayExecutor

__all__ = ["Executor", "make_executor"]


def make_executor(
    name: str, *, jobs: int | None = None, default_jobs: int = 1, ray_address: str | None = None
) -> Executor:
    """Return an executor by name.

    Parameters
    ----------
    name : {"processes", "ray"}
        Processes of this machine, or tasks of a Ray cluster.
    jobs : int, optional
        Most runs at the same time; 0 means one per core of this machine, or all that the Ray cluster has room for.
    default_jobs : int, default=1
        Processes where `jobs` is None. On Ray it is all that the cluster has room for.
    ray_address : str, optional
        Address of a Ray cluster (`RayExecutor`).
    """
    makers: dict[str, Callable[[], Executor]] = {
        "processes": lambda: ProcessExecutor(default_jobs if jobs is None else jobs or available_cores()),
        "ray": lambda: RayExecutor(ray_address, jobs or None),
    }
    if name not in makers:
        raise unknown_name("executor", name, makers)
    return makers[name]()
