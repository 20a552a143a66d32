"""Many runs: each once, by whoever gets to it, with the same result one after the other and side by side."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedul.config import DataConfig, TrainConfig
from fedul.errors import FedulError, WorldError
from fedul.files import Lock
from fedul.jobs import Job, Studies, run_all
from fedul.runs import Busy, RunFolder
from fedul.training import train

from .watching import Witness

DATA = DataConfig(clients=2, sets=(10,), validation=0.6)
TRAINING = TrainConfig(rounds=2, batch_size=256, model="linear", threads=1)


def jobs_in(folder: Path, count: int, **changes: object) -> list[Job]:
    return [
        Job(f"seed {i}", RunFolder(folder / str(i)), replace(DATA, seed=i), replace(TRAINING, seed=i, **changes))
        for i in range(count)
    ]


def digests(jobs: Sequence[Job]) -> list[str]:
    return [(job.folder.result() or {})["weights_sha256"] for job in jobs]


def test_side_by_side_runs_end_as_they_do_one_after_the_other(tmp_path: Path) -> None:
    one_by_one, at_once = jobs_in(tmp_path / "a", 4), jobs_in(tmp_path / "b", 4)
    in_turn, together = Witness(), Witness()
    assert list(run_all(one_by_one, in_turn)) == [0, 1, 2, 3]
    assert list(run_all(at_once[:1], together)) == [0]
    places = list(run_all(at_once, together, at_once=2))
    assert places[0] == 0
    assert sorted(places) == [0, 1, 2, 3]
    assert digests(one_by_one) == digests(at_once)
    assert [title for _, _, title in in_turn.seen] == ["seed 0", "seed 1", "seed 2", "seed 3"]
    assert sorted(together.together_done) == ["seed 1", "seed 2", "seed 3"]


def test_a_run_that_ends_early_counts_as_unfinished(tmp_path: Path) -> None:
    assert list(run_all(jobs_in(tmp_path, 1), Witness())) == [0]
    longer = jobs_in(tmp_path, 1, rounds=3)
    assert not longer[0].done()
    witness = Witness()
    list(run_all(longer, witness))
    assert longer[0].done()
    assert len(witness.seen) == 1


def test_what_another_process_is_at_is_left_to_it_and_waited_for(tmp_path: Path) -> None:
    jobs, witness = jobs_in(tmp_path, 3), Witness()
    theirs = Lock(jobs[0].folder.path)
    assert theirs.__enter__()

    def let_go() -> None:
        deadline = time.monotonic() + 60
        while not (jobs[1].done() and jobs[2].done()) and time.monotonic() < deadline:
            time.sleep(0.05)
        theirs.__exit__()

    other = threading.Thread(target=let_go)
    other.start()
    assert list(run_all(jobs, witness)) == [1, 2, 0]
    other.join()
    assert [number for number, _, _ in witness.seen] == [2, 3, 1]


def test_a_run_cannot_be_trained_twice_at_the_same_time(tmp_path: Path) -> None:
    study, out = Studies().of(DATA), tmp_path / "R"

    class Second:
        def warn(self, sentence: str) -> None: ...

        def round(self, figures: object, rounds: int) -> None:
            with pytest.raises(Busy, match=r"R: another process is training this run; wait for it, or choose another"):
                train(study, out=out, resume=True, model="linear", rounds=2)

    train(study, out=out, reporter=Second(), model="linear", rounds=2)
    RunFolder(out).check_free()


def test_the_first_run_that_fails_ends_the_others(tmp_path: Path) -> None:
    jobs = jobs_in(tmp_path, 2, rounds=100_000)
    jobs[0] = replace(jobs[0], training=replace(jobs[0].training, learning_rate=1e38, rounds=3))
    with pytest.raises(FedulError, match="the loss is no longer finite") as caught:
        list(run_all(jobs, Witness(), at_once=2))
    assert "run_rounds" in "".join(caught.value.__notes__)  # where in the worker it was
    assert not any(job.done() for job in jobs)


def is_loading(folder: Path) -> bool:
    return len(multiprocessing.active_children()) == 2


def is_training(folder: Path) -> bool:
    return any(folder.glob("*/metrics.jsonl"))


@pytest.mark.parametrize(("which", "begun"), [(0, is_training), (1, is_loading)])
def test_a_worker_that_is_killed_is_said_to_be_so(tmp_path: Path, which: int, begun: Callable[[Path], bool]) -> None:
    jobs = jobs_in(tmp_path, 2, rounds=100_000)

    def kill_one() -> None:
        deadline = time.monotonic() + 60
        while not begun(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        sorted(multiprocessing.active_children(), key=lambda child: child.pid or 0)[which].kill()

    other = threading.Thread(target=kill_one)
    other.start()
    with pytest.raises(WorldError, match="was killed, maybe for want of memory; use fewer --jobs"):
        list(run_all(jobs, Witness(), at_once=2))
    other.join()
    assert multiprocessing.active_children() == []
