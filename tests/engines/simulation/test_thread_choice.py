"""The choice between numbers of threads, on a clock of the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fedul.engines.simulation.thread_choice import SMALLEST_GAP, TRIAL_SHARE, ThreadChoice


class Machine:
    """A clock that moves by what a batch takes with a number of threads."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.now, self.seconds = 0.0, seconds
        self.choice = ThreadChoice(sorted(seconds), lambda: self.now)

    def run(self, batches: int, rows: Callable[[int], int] = lambda number: 100) -> list[int]:
        """Run batches, and return the number of threads of each."""
        used = []
        for number in range(batches):
            with self.choice.batch(rows(number)) as threads:
                assert torch.get_num_threads() == threads
                self.now += self.seconds[threads] * rows(number)
            used.append(threads)
        return used


def test_every_number_of_threads_is_tried_twice_and_the_fastest_is_used() -> None:
    used = Machine({1: 3.0, 2: 2.0, 4: 2.5}).run(6 + SMALLEST_GAP)
    assert used[:6] == [1, 2, 4, 1, 2, 4]
    assert set(used[6:]) == {2}


@pytest.mark.parametrize("slow", [2.1, 3.0, 8.0, 160.0])
def test_trials_of_the_slower_number_of_threads_take_a_small_share_of_the_time(slow: float) -> None:
    machine = Machine({1: slow, 2: 2.0})
    machine.run(4)
    begun, batches = machine.now, 20_000
    used = machine.run(batches)
    assert used.count(1) >= 3
    assert machine.now - begun <= (1 + 1.1 * TRIAL_SHARE) * batches * 100 * 2.0


def test_a_machine_that_becomes_busy_is_left_to_the_other_number_after_three_batches() -> None:
    machine = Machine({1: 3.0, 2: 2.0})
    machine.run(10)
    machine.seconds[2] = 20.0
    assert machine.run(8) == [2] * 3 + [1] * 5
    machine.seconds[2] = 2.0
    assert machine.run(300)[-1] == 2


def test_one_slow_batch_changes_nothing() -> None:
    machine = Machine({1: 3.0, 2: 2.0})
    machine.run(10)
    machine.seconds[2] = 20.0
    assert machine.run(1) == [2]
    machine.seconds[2] = 2.0
    assert machine.run(4) == [2] * 4


def test_a_number_of_threads_that_is_several_times_slower_is_not_tried_twice_at_the_start() -> None:
    used = Machine({1: 1.0, 2: 80.0}).run(1000)
    assert used.count(2) == 1


@pytest.mark.parametrize("rows", [lambda number: 10 + 90 * (number % 2), lambda number: 0])
def test_batches_are_compared_by_their_time_for_a_row(rows: Callable[[int], int]) -> None:
    used = Machine({1: 3.0, 2: 2.0}).run(20, rows)
    if rows(1):
        assert set(used[4:]) == {2}


def test_the_number_of_threads_before_is_restored() -> None:
    before = torch.get_num_threads()
    Machine({before + 1: 1.0}).run(3)
    assert torch.get_num_threads() == before
