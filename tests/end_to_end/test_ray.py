"""Grids on Ray: a cluster of two nodes, and a local Ray, both real and outside of the process of the tests."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedul.training import RunFolder

from ..waiting import wait_until
from .checks import is_one_sentence, refuses
from .command import Fedul, Outcome, Warm, environment
from .ray_cluster import (
    LOOPBACK,
    RayCluster,
    listening_addresses,
    open_files,
    processes_in_session,
    started_cluster,
)

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed; make ray installs it and runs this test"
)
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system has no /proc")

COMPARE = "compare --data digits --methods fedul --clients 2 --held-out 0.6 --model linear --threads 1"
FOREVER = 1_000_000
LOOPBACK_ADDRESSES = {
    "0100007F",
    "00000000000000000000000001000000",
    "0000000000000000FFFF00000100007F",
}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1, as the kernel of a little-endian machine writes them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with started_cluster(tmp_path_factory.mktemp("nodes"), environment()) as started:
        yield started


def runs(folder: Path) -> list[Path]:
    return sorted((folder / "runs" / "fedul_under_fedavg").glob("seed-*"))


def digests(folder: Path) -> list[str]:
    return [result.weights_sha256 for run in runs(folder) if (result := RunFolder(run).result())]


def last_line(outcome: Outcome) -> str:
    """Return the last line of standard error, which follows lines of progress if a command takes long."""
    return outcome.err.splitlines()[-1]


def on(cluster: RayCluster) -> str:
    return f"--executor ray --ray-address {cluster.address}"


@needs_ray
@pytest.mark.slow
def test_runs_on_two_nodes_have_the_weights_of_serial_runs_and_finished_ones_are_kept(
    warm: Warm, tmp_path: Path, cluster: RayCluster
) -> None:
    serial = warm.run(f"{COMPARE} --rounds 2 --seeds 3 --out A --json", tmp_path)
    first = warm.run(f"{COMPARE} --rounds 2 --seeds 1 --out B", tmp_path)
    assert (serial.code, first.code) == (0, 0)
    written = (runs(tmp_path / "B")[0] / "result.json").stat().st_mtime_ns
    distributed = warm.run(f"compare --resume --seeds 3 --out B {on(cluster)} --json", tmp_path, names=LOOPBACK)
    assert distributed.code == 0, distributed.err
    assert len(digests(tmp_path / "A")) == 3
    assert digests(tmp_path / "A") == digests(tmp_path / "B")
    assert distributed.document["results"][0]["errors"] == serial.document["results"][0]["errors"]
    assert (runs(tmp_path / "B")[0] / "result.json").stat().st_mtime_ns == written


@needs_ray
@needs_proc
@pytest.mark.slow
def test_results_arrive_from_nodes_that_do_not_share_the_folder(
    warm: Warm, tmp_path: Path, cluster: RayCluster
) -> None:
    elsewhere = "/proc/self/cwd/B"  # another folder in every process that has another working directory
    serial = warm.run(f"{COMPARE} --rounds 4 --seeds 1 --out A", tmp_path)
    first = warm.run(f"{COMPARE} --rounds 2 --seeds 1 --out {elsewhere}", tmp_path)  # which a node continues
    assert (serial.code, first.code) == (0, 0)
    distributed = warm.run(f"compare --resume --rounds 4 --out {elsewhere} {on(cluster)}", tmp_path, names=LOOPBACK)
    assert distributed.code == 0, distributed.err
    assert len(digests(tmp_path / "A")) == 1
    assert digests(tmp_path / "A") == digests(tmp_path / "B")
    files = [sorted(file.name for file in runs(tmp_path / name)[0].rglob("*")) for name in "AB"]
    assert files[0] == files[1]


@needs_ray
@pytest.mark.slow
def test_a_run_that_fails_on_a_node_is_one_sentence(warm: Warm, tmp_path: Path, cluster: RayCluster) -> None:
    line = f"{COMPARE} --rounds 3 --seeds 2 --learning-rate 1e38 --out A {on(cluster)}"
    outcome = warm.run(line, tmp_path, names=LOOPBACK)
    assert outcome.code == 1
    assert "the loss is no longer finite" in last_line(outcome)
    assert "Traceback" not in outcome.err


@needs_ray
@needs_proc
@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_ctrl_c_ends_the_tasks_but_not_the_cluster(
    warm: Warm, tmp_path: Path, cluster: RayCluster
) -> None:
    command = warm.start(f"{COMPARE} --rounds {FOREVER} --seeds 2 --out A {on(cluster)}", tmp_path, names=LOOPBACK)

    def workers() -> dict[Path, int]:
        """Return the processes of Ray that train, by their run folder."""
        processes = {process: open_files(process) for process in processes_in_session(cluster.process.pid)}
        return {run: pid for run in runs(tmp_path / "A") for pid, files in processes.items() if str(run) in files}

    def train() -> bool:
        return len(workers()) == 2 and all((run / "metrics.jsonl").exists() for run in runs(tmp_path / "A"))

    try:
        command.wait_until(train, pause=0.1)
        (folder, killed), *_ = workers().items()
        os.kill(killed, signal.SIGKILL)
        command.wait_until(lambda: workers().get(folder, killed) != killed, pause=0.1)
    finally:
        command.send(signal.SIGINT)
    outcome = command.outcome()
    assert (outcome.code, last_line(outcome)) == (130, "fedul: stopped; repeat the command with --resume to continue.")
    wait_until(lambda: not workers())
    assert cluster.is_alive()


@needs_ray
@needs_proc
@pytest.mark.slow
def test_a_local_ray_listens_on_loopback_only_and_nothing_of_it_is_left(warm: Warm, tmp_path: Path) -> None:
    listening = set[str]()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as scratch:
        names = {"TMPDIR": scratch, "RAY_ADDRESS": ""}
        command = warm.start(f"{COMPARE} --rounds 2 --seeds 2 --executor ray --out A", tmp_path, names=names)

        def look() -> bool:
            listening.update(listening_addresses(processes_in_session(command.pid)))
            return False

        command.wait_until(look, pause=0.1)
        outcome = command.outcome()
        assert outcome.code == 0, outcome.err
        wait_until(lambda: not processes_in_session(command.pid))
        assert os.listdir(scratch) == []
    assert listening
    assert listening <= LOOPBACK_ADDRESSES
    assert len(digests(tmp_path / "A")) == 2


@needs_ray
def test_wrong_names_and_addresses_are_one_sentence(fedul: Fedul, tmp_path: Path) -> None:
    refuses(fedul, tmp_path, f"{COMPARE} --executor rays --out A", "executor: 'rays'")
    refuses(fedul, tmp_path, f"{COMPARE} --ray-address 127.0.0.1:6379 --out A", "ray-address: is for --executor ray")
    refuses(fedul, tmp_path, f"{COMPARE} --executor ray --ray-address host --out A", "ray-address: expected HOST:PORT")
    refuses(fedul, tmp_path, "reproduce table1 --scale smoke --executor rays", "unknown executor 'rays': did you mean")


@needs_ray
def test_an_address_without_a_cluster_is_one_sentence_and_nothing_is_written(fedul: Fedul, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    outcome = fedul(f"{COMPARE} --executor ray --ray-address 127.0.0.1:{port} --out A")
    assert outcome.code == 1
    assert is_one_sentence(outcome.err), outcome.err
    assert f"no connection to a Ray cluster at '127.0.0.1:{port}' (Connection refused)" in outcome.err
    assert not (tmp_path / "A").exists()
