"""A connection to Ray: to the cluster that the user named, or to a local Ray that ends with it.

Nothing that the user did not name is contacted. `ray.init` without an address would look for a cluster of its own.
A local Ray listens on loopback, without dashboard and without usage statistics.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedul._utils.hardware import available_cores
from fedul._utils.processes import DeferredSignals
from fedul.errors import EnvironmentFailure, InputError, first_line

ADDRESS = "RAY_ADDRESS"
"""Environment variable of Ray with the address of a cluster."""
LOCAL_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray replaces a loopback address by one that others can reach
}
LOOPBACK = "127.0.0.1"
OBJECT_STORE = 100 * 2**20
"""Shared memory of a local Ray in bytes: its tasks write to the run folders themselves."""
LONGEST_FOLDER = 40
"""Characters of a folder in which Ray can create sockets, whose paths are short."""


def require_ray() -> None:
    """Raise InputError unless Ray is installed; nothing is imported."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("Ray is not installed; install fedul with it: pip install 'fedul[ray]'.")


@contextmanager
def connected(address: str | None) -> Iterator[tuple[Any, bool]]:
    """Context with the module `ray`, connected, and whether its nodes are only those of a local Ray.

    Parameters
    ----------
    address : str, optional
        Address of a cluster. Default: that of the variable RAY_ADDRESS. Without both, the connection that this process
        has, and else a local Ray, which is shut down at the end of the block. A cluster is only disconnected from.
    """
    address = address or os.environ.get(ADDRESS)
    if address is None or address == "local":
        with _local_ray() as ray:
            yield ray, True
    else:
        with _cluster(address) as ray:
            yield ray, False


@contextmanager
def _local_ray() -> Iterator[Any]:
    with _variables(LOCAL_VARIABLES):
        ray = importlib.import_module("ray")
        if ray.is_initialized():
            yield ray
            return
    base = tempfile.gettempdir()
    base = base if len(base) <= LONGEST_FOLDER else "/tmp"
    with tempfile.TemporaryDirectory(prefix="fedul-ray-", dir=base, ignore_cleanup_errors=True) as folder:
        try:
            with DeferredSignals(), _variables(LOCAL_VARIABLES), _without_tip():
                ray.init(
                    "local",
                    num_cpus=available_cores(),
                    object_store_memory=OBJECT_STORE,
                    include_dashboard=False,
                    log_to_driver=False,
                    configure_logging=False,
                    _node_ip_address=LOOPBACK,
                    _temp_dir=folder,
                )
            yield ray
        except (OSError, RuntimeError) as problem:
            if ray.is_initialized() or isinstance(problem, EnvironmentFailure):
                raise
            raise EnvironmentFailure(
                f"Ray could not be started on this machine ({first_line(problem)}); use --executor processes."
            ) from None
        finally:
            with DeferredSignals():
                ray.shutdown()


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    ray = importlib.import_module("ray")
    if ray.is_initialized():  # by the caller, who closes it
        yield ray
        return
    try:
        with _same_sigterm(), _without_tip():
            ray.init(address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as problem:
        raise EnvironmentFailure(
            f"ray-address: no connection to a Ray cluster at '{address}' ({first_line(problem)}); start it, or correct "
            "the address."
        ) from None
    try:
        yield ray
    finally:
        with DeferredSignals():
            ray.shutdown()


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Context with other environment variables."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _same_sigterm() -> Iterator[None]:
    """Context after which SIGTERM has the handler of before, which `ray.init` replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _without_tip() -> Iterator[None]:
    """Context without the hint of Ray about tasks without a GPU: fedul names the device of every task."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
        yield
