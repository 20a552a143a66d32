"""A connection to Ray: to the cluster that the user named, or to a local Ray that ends with it.

Nothing that the user did not name is contacted. `ray.init` without an address would look for a cluster of its own.
A local Ray listens on loopback, without dashboard and without usage statistics.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from fedul._utils.hardware import available_cores
from fedul._utils.processes import DeferredSignals
from fedul.errors import EnvironmentFailure, InputError, first_line

ADDRESS = "RAY_ADDRESS"
"""Environment variable of Ray with the address of a cluster."""
AUTO = "auto"
"""Address by which Ray looks for the cluster that runs on this machine."""
LAST_PORT = 2**16 - 1
CONNECT_SECONDS = 10.0
"""Time that a named cluster has to accept a connection."""
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


def check_address(address: str | None) -> None:
    """Raise an error unless something listens at the address of a cluster; Ray itself would try for minutes.

    Parameters
    ----------
    address : str, optional
        As for `connected`.
    """
    address = _named(address)
    if address is None or address == AUTO:
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > LAST_PORT:
        raise InputError(f"ray-address: expected HOST:PORT, got '{address}'.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as problem:
        raise _no_connection(address, problem.strerror or first_line(problem)) from None


@contextmanager
def connected(address: str | None) -> Iterator[tuple[Any, bool]]:
    """Context with the module `ray`, connected, and whether it is a local Ray. Tasks end with the block.

    Parameters
    ----------
    address : str, optional
        Address of a cluster, one of whose nodes is this machine. Default: that of the variable RAY_ADDRESS. Without
        both a local Ray is started, which is shut down at the end of the block. A cluster is only disconnected from.
    """
    address = _named(address)
    with ExitStack() as stack:
        if address is None:
            stack.enter_context(_variables(LOCAL_VARIABLES))
        ray = importlib.import_module("ray")
        if ray.is_initialized():
            raise InputError("executor: this process is connected to Ray already; call ray.shutdown() before.")
        folder = stack.enter_context(_short_folder()) if address is None else ""
        stack.callback(_disconnect, ray)
        stack.enter_context(_without_tip())
        if address is None:
            _start(ray, folder)
        else:
            _join(ray, address)
        yield ray, address is None


def _start(ray: Any, folder: str) -> None:
    """Start a local Ray with its files in a folder."""
    try:
        with DeferredSignals():
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
    except (OSError, RuntimeError) as problem:
        raise EnvironmentFailure(
            f"Ray could not be started on this machine ({first_line(problem)}); use --executor processes."
        ) from None


def _join(ray: Any, address: str) -> None:
    """Connect to a cluster."""
    try:
        with _same_sigterm():
            ray.init(address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as problem:
        raise _no_connection(address, first_line(problem)) from None


def _disconnect(ray: Any) -> None:
    with DeferredSignals():
        ray.shutdown()


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    base = tempfile.gettempdir()
    base = base if len(base) <= LONGEST_FOLDER else "/tmp"
    return tempfile.TemporaryDirectory(prefix="fedul-ray-", dir=base, ignore_cleanup_errors=True)


def _named(address: str | None) -> str | None:
    """Return the address of the cluster that is named; None for a local Ray."""
    address = address or os.environ.get(ADDRESS) or None
    return None if address == "local" else address


def _no_connection(address: str, reason: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"ray-address: no connection to a Ray cluster at '{address}' ({reason}); correct the address, and "
        "run the command on a machine of the cluster."
    )


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
