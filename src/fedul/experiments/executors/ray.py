"""Tasks of Ray: on the nodes of a cluster, or on a local Ray.

A run is one task. It reserves the cores of `--threads` (one where they are not given) and one GPU if it trains on GPUs.
Ray starts a task again whose worker or node is lost. Tasks that still run at the end are ended by disconnecting: to
cancel them one by one can abort this process (a race in Ray between the end of a task and its cancellation).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from fedul.config import TrainConfig
from fedul.errors import EnvironmentFailure, InputError, first_line
from fedul.experiments.executors.base import run_pool, with_cores
from fedul.experiments.executors.ray_session import check_address, connected, require_ray
from fedul.experiments.executors.ray_task import read_documents, store_documents, train_on_node, write_marker
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import Callback, RunFolder

ATTEMPTS = 3
"""Times that a run is started whose worker or node is lost."""
WAIT_SECONDS = 1.0
"""Time after which the number of nodes is looked up again."""


@dataclass(frozen=True)
class RayExecutor:
    """Tasks of Ray.

    Parameters
    ----------
    address : str, optional
        Address (HOST:PORT) of a cluster. Default: the variable RAY_ADDRESS, else a local Ray is started.
    most : int, optional
        Most runs at the same time. Default: all that the cluster has room for.
    """

    address: str | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        require_ray()
        check_address(self.address)

    def checkable(self, training: TrainConfig) -> TrainConfig:
        """Return the settings with what only a node may have, a GPU, replaced."""
        precision = "auto" if training.precision == "float16" else training.precision
        return replace(training, device="cpu", precision=precision)

    def run(
        self, jobs: Sequence[RunJob], left: Sequence[int], callback: Callback, studies: StudyCache
    ) -> Iterator[int]:
        """Train jobs as tasks; the data is loaded on the nodes."""
        with connected(self.address) as (ray, is_local), RayPool(ray, self.most or len(left)) as pool:
            if message := pool.unmet_need([jobs[place] for place in left]):
                if is_local:
                    raise InputError(f"{message}; ask for less with --threads or --device.")
                callback.on_warning(f"{message}; runs wait until one has joined.")
            yield from run_pool(pool, jobs, left, callback)


@dataclass(frozen=True)
class _Task:
    """A started task."""

    job: RunJob
    needs: Mapping[str, int]
    reference: Any
    marker: Path


@dataclass
class RayPool:
    """Tasks that run at the same time; those that still run at the end of the block end with the connection.

    Parameters
    ----------
    ray : module
        The module `ray`, connected.
    most : int
        Most tasks at the same time.
    """

    ray: Any
    most: int
    parallel: int = 2
    _tasks: dict[int, _Task] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.parallel = max(2, min(self.most, round(self._total().get("CPU", 0))))  # 2: rounds are not reported
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.marker.unlink(missing_ok=True)

    def unmet_need(self, jobs: Sequence[RunJob]) -> str:
        """Return a message about a job that no node can run; empty if there is none."""
        nodes = self._nodes()
        for job in jobs:
            needs = self._needs(job)
            if not any(all(node.get(name, 0) >= need for name, need in needs.items()) for node in nodes):
                wanted = " and ".join(f"{need} {name}{'s' if need > 1 else ''}" for name, need in needs.items())
                return f"no node of Ray has the {wanted} that a run asks for"
        return ""

    def has_room(self, job: RunJob) -> bool:
        """Return whether a job can start now."""
        if not self._tasks:
            return True
        total, every = self._total(), [self._needs(job), *(task.needs for task in self._tasks.values())]
        names = {name for needs in every for name in needs}
        fits = all(sum(needs.get(name, 0) for needs in every) <= total.get(name, 0) for name in names)
        return fits and len(self._tasks) < self.most

    def submit(self, place: int, job: RunJob) -> None:
        """Start a job under a number."""
        job = replace(job, folder=RunFolder(Path(os.path.abspath(job.folder.path))))
        needs = self._needs(job)
        device = "cuda" if "GPU" in needs and job.training.device == "auto" else job.training.device.partition(":")[0]
        training = replace(job.training, device="cpu" if device == "auto" else device)
        job = with_cores(replace(job, training=training), needs["CPU"])
        marker = write_marker(job.folder.path)
        remote = self.ray.remote(train_on_node).options(
            num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), max_retries=ATTEMPTS - 1, name=job.title
        )
        reference = remote.remote(job, str(marker), read_documents(job.folder.path))
        self._tasks[place] = _Task(job, needs, reference, marker)

    def wait(self) -> Sequence[int]:
        """Return the numbers of jobs that have an answer, as soon as there is one; maybe none, after a while."""
        places = {task.reference: place for place, task in self._tasks.items()}
        try:
            ready, _ = self.ray.wait(list(places), timeout=WAIT_SECONDS)
        except SystemError as problem:  # in which Ray wraps what the handler of a signal raises
            raise problem.__cause__ or problem from None
        return [places[reference] for reference in ready]

    def receive(self, place: int) -> list[str] | None:
        """Return the warnings of a job; None if another process is training it. Raises what the job raised."""
        task, exceptions = self._tasks.pop(place), self.ray.exceptions
        try:
            answer, documents = self.ray.get(task.reference)
        except exceptions.RayTaskError as problem:  # `train_on_node` returns what a run raises
            raise EnvironmentFailure(
                f"a Ray node cannot run fedul ({first_line(problem.cause or problem)}); install the same version of "
                "fedul on every node."
            ) from None
        except exceptions.RayError as problem:
            raise EnvironmentFailure(
                f"{task.job.title}: its Ray worker or node was lost {ATTEMPTS} times, maybe because memory ran out "
                f"({first_line(problem)}); use fewer --jobs. Finished runs are kept."
            ) from None
        finally:
            task.marker.unlink(missing_ok=True)
        is_stored = store_documents(task.job.folder, documents)
        if isinstance(answer, Exception):
            raise answer
        return answer if is_stored else None

    def _needs(self, job: RunJob) -> dict[str, int]:
        """Return the cores and GPUs of a job."""
        training = job.training
        cores, kind = training.threads or training.workers or 1, training.device.partition(":")[0]
        uses_gpu = self._total().get("GPU", 0) > 0 if kind == "auto" else kind not in ("cpu", "meta")
        return {"CPU": cores, **({"GPU": 1} if uses_gpu else {})}

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def _total(self) -> dict[str, float]:
        nodes = self._nodes()
        return {name: sum(node.get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
