"""A Ray cluster of two nodes on this machine, in a process of its own: Ray can abort the process that it runs in.

What Ray starts stays in the session of the process that started it, by which the processes are found. Files are in a
folder with a short path, because Ray creates sockets in it, and are deleted at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..waiting import wait_until

LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ADDRESS": ""}
"""Environment in which Ray uses the loopback address, and reports nothing."""
LISTENS = "0A"

PROGRAM = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster()
try:
    for options in ({"include_dashboard": False}, {}):
        cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20, node_ip_address="127.0.0.1", **options)
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        print(cluster.remaining_processes_alive(), flush=True)
finally:
    cluster.shutdown()
"""
"""Starts two nodes with one core each, prints the address, and answers every line with whether all processes live."""


@dataclass(frozen=True)
class RayCluster:
    """A cluster that runs."""

    address: str
    process: subprocess.Popen[str]

    def is_alive(self) -> bool:
        """Return whether all processes of both nodes run."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip() == "True"


@contextmanager
def started_cluster(at: Path, variables: dict[str, str]) -> Iterator[RayCluster]:
    """Context with a cluster whose processes have this working directory and these environment variables."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder, (at / "cluster.log").open("w+") as log:
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=at,
            env={**variables, **LOOPBACK, "RAY_TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, (at / "cluster.log").read_text()
            yield RayCluster(address, process)
        wait_until(lambda: not processes_in_session(process.pid))


def processes_in_session(session: int) -> list[int]:
    """Return the processes of a session that run; none where there is no /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(process.name))
    return found


def open_files(process: int) -> set[str]:
    """Return the files, folders and sockets that a process has open; none if it has ended."""
    found = set()
    with suppress(OSError):
        for each in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # closed since
                found.add(os.readlink(each))
    return found


def listening_addresses(processes: list[int]) -> set[str]:
    """Return the addresses on which processes accept TCP connections, as the kernel writes them (hexadecimal)."""
    sockets = {file for process in processes for file in open_files(process)}
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS and f"socket:[{inode}]" in sockets:
                found.add(local.partition(":")[0])
    return found
