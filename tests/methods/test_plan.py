"""A plan is one pass over a client's rows, with everything random drawn beforehand."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedul._utils.randomness import torch_generator
from fedul.core import Scaling
from fedul.methods.fedul import FedUL
from fedul.methods.task import Step, Task

from ..factories import make_client, make_federation
from ..worlds import repeatable, seeds


def task_of(rows: int, shape: tuple[int, ...] = (1,)) -> Task:
    """Return a task of rows whose values are their row numbers."""
    inputs = torch.arange(float(rows)).reshape(-1, *[1] * len(shape)).expand(rows, *shape).contiguous()
    client = make_client("a", np.eye(2), inputs=inputs, sets=np.arange(rows) % 2)
    return FedUL().task(client, make_federation(client, scaling=Scaling(2.0)).spec)


def numbers(step: Step) -> list[int]:
    return (step.inputs.flatten(1)[:, 0] / 2).int().tolist()


def planned(task: Task, batch_size: int = 0, seed: int = 0) -> list[list[int]]:
    return [numbers(step) for step in task.plan(torch_generator(seed), batch_size)]


@repeatable
@given(st.integers(2, 70), st.integers(0, 80), seeds)
def test_a_plan_has_every_row_exactly_once(rows: int, batch_size: int, seed: int) -> None:
    steps = planned(task_of(rows), batch_size, seed)
    assert sorted(chain(*steps)) == list(range(rows))


@repeatable
@given(st.integers(2, 70), st.integers(2, 80), seeds)
def test_steps_have_the_batch_size_and_only_the_last_one_differs(rows: int, batch_size: int, seed: int) -> None:
    *others, last = [len(step) for step in planned(task_of(rows), batch_size, seed)]
    assert others == [batch_size] * len(others)
    assert 2 <= last <= batch_size + 1


def test_a_last_step_of_one_row_joins_the_step_before() -> None:
    assert [len(step) for step in planned(task_of(65), 32)] == [32, 33]


def test_a_batch_of_all_rows_is_one_step() -> None:
    assert [len(step) for step in planned(task_of(65))] == [65]


def test_a_client_of_one_row_has_one_step() -> None:
    client = make_client("a", np.eye(2), rows=1)
    task = FedUL().task(client, make_federation(client).spec)
    alone = Task(task.inputs, task.index[:1], task.targets, task.scaling)
    assert [len(step.inputs) for step in alone.plan(torch_generator(0), 32)] == [1]


def test_the_number_of_steps_is_known_beforehand() -> None:
    plan = task_of(65).plan(torch_generator(0), 10)
    assert len(plan) == len(list(plan)) == 7


def test_the_order_of_rows_follows_from_the_generator() -> None:
    task = task_of(40)
    assert planned(task, 7, seed=0) == planned(task, 7, seed=0) != planned(task, 7, seed=1)
    assert [*chain(*planned(task, 7))] != list(range(40))


@pytest.mark.parametrize("augment", ["none", "rotate", "flip", "flip-crop"])
def test_a_plan_gives_the_same_steps_every_time_it_is_iterated(augment: str) -> None:
    plan = task_of(10, (1, 8, 8)).plan(torch_generator(0), 3, augment)
    for one, two in zip(plan, plan, strict=True):
        assert torch.equal(one.inputs, two.inputs)
        assert all(torch.equal(one.targets[name], two.targets[name]) for name in one.targets)


@pytest.mark.parametrize("side", [2, 600])
def test_targets_stay_with_their_rows_however_large_these_are(side: int) -> None:
    task = task_of(11, (1, side, side))
    for step in task.plan(torch_generator(0), 3):
        expected = task.step(torch.tensor(numbers(step)))
        assert torch.equal(step.inputs, expected.inputs)
        assert torch.equal(step.targets["joint"], expected.targets["joint"])


def test_augmented_rows_keep_their_order_and_targets() -> None:
    task = task_of(11, (1, 12, 12))
    plain, changed = (list(task.plan(torch_generator(0), 3, augment)) for augment in ("none", "flip-crop"))
    for before, after in zip(plain, changed, strict=True):
        assert torch.equal(after.inputs[:, 0, 5, 5], before.inputs[:, 0, 5, 5])
        assert torch.equal(after.targets["joint"], before.targets["joint"])


def test_rows_in_order_are_all_rows_in_their_own_order() -> None:
    steps = [numbers(step) for step in task_of(10).batches(4)]
    assert steps == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@repeatable
@given(st.integers(2, 40), st.integers(1, 40), st.integers(0, 50), seeds)
def test_rows_that_are_not_trained_on_are_in_no_step_and_do_not_change_what_is_drawn(
    trained: int, others: int, batch_size: int, seed: int
) -> None:
    whole = replace(task_of(trained + others), trained=trained)
    assert len(whole) == trained
    assert planned(whole, batch_size, seed) == planned(task_of(trained), batch_size, seed)
    assert list(chain(*(numbers(step) for step in whole.batches(7)))) == list(range(trained + others))


@pytest.mark.parametrize("trained", [0, -1, 11])
def test_a_task_cannot_train_on_no_row_or_on_more_rows_than_it_has(trained: int) -> None:
    with pytest.raises(ValueError, match="cannot train on"):
        replace(task_of(10), trained=trained)


def test_weights_of_rows_replace_the_plain_mean() -> None:
    values = torch.tensor([1.0, 2.0, 6.0])
    assert_array_equal(Step(torch.zeros(3, 1), {}).mean(values), 3)
    assert_array_equal(Step(torch.zeros(3, 1), {}, weight=torch.tensor([0.5, 0.5, 0])).mean(values), 1.5)
