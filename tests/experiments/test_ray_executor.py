"""The grid on Ray: a cluster of two nodes, and a local Ray, both real."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedul import compare
from fedul._utils.files import FolderLock
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.core import RoundMetrics
from fedul.errors import EnvironmentFailure, FedulError, InputError
from fedul.experiments.executors import make_executor
from fedul.experiments.executors.ray import ATTEMPTS, RayExecutor
from fedul.experiments.job_pool import run_jobs
from fedul.experiments.run_job import RunJob
from fedul.training import Callback, RunFolder, RunInfo

from ..callbacks import Recorder
from ..waiting import wait_until

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install fedul[ray])"),
    pytest.mark.slow,
    # Ray leaves /dev/null open for the processes that it starts, and does not wait for them.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*(unclosed file|Popen):pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray:FutureWarning"),
]

DATA = BenchmarkDataConfig(clients=2, sets=(10,), held_out=0.6)
TRAINING = TrainConfig(rounds=2, batch_size=256, model="linear", threads=1)
FOREVER = 100_000


def jobs_in(folder: Path, count: int, **changes: Any) -> list[RunJob]:
    return [
        RunJob(f"seed {i}", RunFolder(folder / str(i)), replace(DATA, seed=i), replace(TRAINING, seed=i, **changes))
        for i in range(count)
    ]


def digests(jobs: list[RunJob]) -> list[str]:
    return [result.weights_sha256 for job in jobs if (result := job.folder.result())]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes with one core each, on this machine; their processes have another working directory than the test."""
    before, variables = os.getcwd(), {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.chdir(tmp_path_factory.mktemp("nodes"))
        from ray.cluster_utils import Cluster

        options = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 * 2**20}
        started = Cluster(initialize_head=True, head_node_args=options)
        try:
            started.add_node(num_cpus=1, object_store_memory=100 * 2**20)
            os.chdir(before)
            yield started
        finally:
            started.shutdown()


@pytest.fixture
def on_cluster(cluster: Any) -> RayExecutor:
    return RayExecutor(cluster.address)


def test_runs_on_two_nodes_have_the_weights_of_serial_runs_and_finished_ones_are_kept(
    tmp_path: Path, on_cluster: RayExecutor
) -> None:
    serial, distributed, calls, again = jobs_in(tmp_path / "a", 3), jobs_in(tmp_path / "b", 3), Recorder(), Recorder()
    list(run_jobs(serial, Recorder()))
    assert list(run_jobs(distributed[:1], Recorder())) == [0]
    places = list(run_jobs(distributed, calls, executor=on_cluster))
    assert places[0] == 0
    assert sorted(places) == [0, 1, 2]
    assert digests(serial) == digests(distributed)
    assert sorted(calls.ended) == ["seed 1", "seed 2"]
    assert list(run_jobs(distributed, again, executor=on_cluster)) == [0, 1, 2]
    assert again.started == []


def test_results_arrive_from_nodes_that_do_not_share_the_run_folder(
    tmp_path: Path, on_cluster: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, monitored = jobs_in(tmp_path / "shared", 1, rounds=4), tmp_path / "here"
    list(run_jobs(shared, Recorder()))
    monitored.mkdir()
    monkeypatch.chdir(monitored)
    elsewhere = Path("/proc/self/cwd/runs")  # another folder in every process that has another working directory
    if not elsewhere.parent.exists():
        pytest.skip("this system has no /proc, by which a path means another folder in another process")
    list(run_jobs(jobs_in(elsewhere, 1), Recorder()))  # two rounds here, which a node continues
    jobs = jobs_in(elsewhere, 1, rounds=4)
    assert list(run_jobs(jobs, Recorder(), executor=on_cluster)) == [0]
    assert digests(jobs) == digests(shared)
    files = [sorted(p.name for p in job.folder.path.rglob("*")) for job in (*jobs, *shared)]
    assert files[0] == files[1]


def test_a_failing_run_gives_the_message_that_processes_give(tmp_path: Path, on_cluster: RayExecutor) -> None:
    jobs, calls = jobs_in(tmp_path, 2, rounds=FOREVER), Recorder()
    jobs[0] = replace(jobs[0], training=replace(jobs[0].training, learning_rate=1e38, rounds=3))
    with pytest.raises(FedulError, match="the loss is no longer finite") as caught:
        list(run_jobs(jobs, calls, executor=on_cluster))
    assert "iterate_rounds" in "".join(caught.value.__notes__)  # where on the node it was
    assert {"failed seed 0", "failed seed 1"} <= set(calls.calls)
    with FolderLock(jobs[1].folder.path) as is_free:  # its task was canceled
        assert is_free


def worker_that_trains(folder: Path) -> int | None:
    """Return the process id of a Ray worker that has a run folder open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and any(
                os.readlink(each) == str(folder) for each in (process / "fd").iterdir()
            ):
                return int(process.name)
        except OSError:
            continue
    return None


@pytest.mark.skipif(not Path("/proc").exists(), reason="this system has no /proc to find a worker by")
@pytest.mark.parametrize("kills", [1, ATTEMPTS])
def test_a_lost_worker_is_replaced_and_reported_when_it_is_lost_again_and_again(
    tmp_path: Path, on_cluster: RayExecutor, kills: int
) -> None:
    (job,), calls, killed = jobs_in(tmp_path, 1, rounds=300 if kills == 1 else FOREVER), Recorder(), list[int]()

    def kill_next() -> bool:
        process = worker_that_trains(job.folder.path)
        if process is None or process in killed or not (job.folder.path / "metrics.jsonl").exists():
            return False
        os.kill(process, signal.SIGKILL)
        killed.append(process)
        return True

    def kill() -> None:
        for _ in range(kills):
            wait_until(kill_next)

    other = threading.Thread(target=kill)
    other.start()
    if kills == 1:
        assert list(run_jobs([job], calls, executor=on_cluster)) == [0]
        assert any("was lost, and it was started again" in message for message in calls.messages)
    else:
        with pytest.raises(EnvironmentFailure, match=rf"seed 0: its Ray worker or node was lost {ATTEMPTS} times"):
            list(run_jobs([job], calls, executor=on_cluster))
    other.join()
    assert len(killed) == kills


def test_an_interruption_cancels_the_tasks_and_leaves_the_cluster(
    tmp_path: Path, on_cluster: RayExecutor, cluster: Any
) -> None:
    jobs = jobs_in(tmp_path, 2, rounds=FOREVER)

    def interrupt() -> None:
        wait_until(lambda: len(list(tmp_path.glob("*/metrics.jsonl"))) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore Ctrl-C
    other = threading.Thread(target=interrupt)
    try:
        other.start()
        with pytest.raises(KeyboardInterrupt):
            list(run_jobs(jobs, Recorder(), executor=on_cluster))
    finally:
        other.join()
        signal.signal(signal.SIGINT, before)
    for job in jobs:
        with FolderLock(job.folder.path) as is_free:
            assert is_free
        assert not list(job.folder.path.glob(".writing-*"))
    assert list(run_jobs(jobs_in(tmp_path / "later", 1), Recorder(), executor=on_cluster)) == [0]


def test_a_run_that_no_node_can_hold_is_announced(tmp_path: Path, on_cluster: RayExecutor) -> None:
    class Stop(Callback):
        def on_warning(self, message: str) -> None:
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match=r"no node of Ray has the 7 CPUs that a run asks for; runs wait until one"):
        list(run_jobs(jobs_in(tmp_path, 1, threads=7), Stop(), executor=on_cluster))


def test_a_comparison_without_an_address_starts_ray_here_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    handler, addresses = signal.getsignal(signal.SIGTERM), set[str]()

    class Look(Callback):
        def on_run_start(self, run: RunInfo) -> None:
            addresses.update(node["NodeManagerAddress"] for node in ray.nodes())

        def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
            raise AssertionError("a task reports no rounds")

    options = {"seeds": 2, "rounds": 2, "clients": 2, "rows": 400, "methods": "fedul", "model": "linear"}
    result = compare("digits", out=tmp_path / "ray", executor="ray", callbacks=[Look()], **options)
    assert result.to_dict()["results"] == pytest.approx(compare("digits", **options).to_dict()["results"])
    assert addresses == {"127.0.0.1"}
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) is handler


def test_an_address_without_a_cluster_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"ray-address: no connection to a Ray cluster at '127.0.0.1:1'"):
        list(run_jobs(jobs_in(tmp_path, 1), Recorder(), executor=RayExecutor("127.0.0.1:1")))


def test_executors_that_do_not_exist_or_take_no_address_are_refused() -> None:
    with pytest.raises(InputError, match="unknown executor 'rays': did you mean 'ray'"):
        make_executor("rays")
    with pytest.raises(InputError, match="ray-address: is for --executor ray"):
        compare("digits", ray_address="127.0.0.1:6379")
