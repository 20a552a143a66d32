"""Processes of Flower that fedul starts: their programs, environment and ports."""

from __future__ import annotations

import random
import socket
import sys
from contextlib import suppress
from pathlib import Path

from fedul.errors import EnvironmentFailure

HOST = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Flower sends no telemetry, does not check for updates and installs nothing."""
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a free port outside the range from which the system assigns ports: it is used only later."""
    for port in random.sample(PORTS, 100):
        with suppress(OSError), socket.socket() as found:
            found.bind((HOST, port))
            return port
    raise EnvironmentFailure("no port from 20000 to 31999 is free; end the programs that use them.")


def is_listening(port: int) -> bool:
    """Return whether a process on this machine listens on a port."""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def flower_program(name: str) -> Path:
    """Return the path of a program that is installed beside this Python."""
    program = Path(sys.executable).parent / name
    if not program.exists():
        raise EnvironmentFailure(f"{name} is not installed; install fedul[flower].")
    return program
