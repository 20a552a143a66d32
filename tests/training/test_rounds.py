"""Which round is delivered if not every site evaluates every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import Update, Weights
from fedul.engines.base import Broadcast, Engine, EngineMetrics
from fedul.engines.client_store import MemoryStore
from fedul.engines.held_out import TEMPERATURES, HeldOutSums
from fedul.methods.fedul import FedUL
from fedul.training import CallbackList, RunContext, RunFolder, RunInfo, RunRecord
from fedul.training.rounds import run_rounds
from fedul.training.state import TrainingState

from ..factories import make_update, random_federation
from ..worlds import repeatable

ROWS = 4
Losses = Mapping[str, float]
"""Held-out loss of a round by site, for the sites that evaluated it."""


class Scripted:
    """An engine whose sites learn nothing and return given losses."""

    names, warnings, piggybacks_evaluation = ("site",), (), False

    def __init__(self, evaluations: Sequence[Losses], spread: float) -> None:
        self._evaluations, self._spread = iter(evaluations), spread

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        delta = {name: tensor * 0 for name, tensor in broadcast.weights.items()}
        return iter([make_update("site", delta, loss=1.0)])

    def evaluate_held_out(self, weights: Weights) -> dict[str, HeldOutSums]:
        return {name: sums_of(loss, self._spread) for name, loss in next(self._evaluations).items()}

    def collect_metrics(self) -> EngineMetrics:
        return EngineMetrics()


def sums_of(loss: float, spread: float) -> HeldOutSums:
    """Sums over rows of this mean loss and standard deviation."""
    losses, squares = (ROWS * value for value in (loss, loss**2 + spread**2))
    count = len(TEMPERATURES)
    return HeldOutSums((losses,) * count, (squares,) * count, (0.0,) * count, ROWS)


def context_of(engine: Engine) -> RunContext:
    spec = random_federation(1).spec
    return RunContext(spec, None, nn.Linear(1, 1), "custom", FedUL(), Algorithm(), engine, MemoryStore())


def run_scripted(
    evaluations: Sequence[Losses], spread: float = 0.0, state: TrainingState | None = None
) -> TrainingState:
    engine = Scripted(evaluations[state.round if state else 0 :], spread)
    return run_rounds(context_of(engine), TrainConfig(rounds=len(evaluations)), state, None, CallbackList(), RunInfo(0))


def delivered(evaluations: Sequence[Losses], spread: float = 0.0) -> int:
    return run_scripted(evaluations, spread).selected_round


losses = st.integers(1, 64).map(lambda number: number / 16)
of_two = st.lists(st.fixed_dictionaries({"north": losses, "south": losses}), min_size=2, max_size=8)


@repeatable
@given(of_two, losses, st.sampled_from([0.0, 1.0]))
def test_a_site_that_stops_evaluating_leaves_the_selection_to_the_others(
    others: list[dict[str, float]], hard: float, spread: float
) -> None:
    assert delivered([{**others[0], "west": 8 * hard}, *others[1:]], spread) == delivered(others, spread)


def test_a_round_is_not_selected_because_a_site_with_hard_rows_did_not_evaluate_it() -> None:
    north = [3.0, 2.0, 1.0]
    everyone = [{"north": loss, "west": 9.0} for loss in north]
    assert delivered([everyone[0], {"north": north[1]}, everyone[2]]) == 3
    rising = [{"north": loss, "west": 9.0} for loss in reversed(north)]
    assert delivered([rising[0], {"north": 2.0}, {"north": 3.0}]) == 1


def test_rounds_are_compared_by_the_sites_that_evaluated_both() -> None:
    lines = [{"north": 2.0, "west": 4.0}, {"north": 3.0}, {"north": 2.5, "west": 3.0}]
    assert delivered(lines) == 3
    assert delivered([*lines[:2], {"north": 2.5, "west": 5.0}]) == 1


def test_of_two_rounds_without_a_common_site_the_later_is_selected() -> None:
    assert delivered([{"north": 1.0}, {"west": 9.0}]) == 2
    assert delivered([{"north": 1.0}, {"west": 9.0}, {"west": 9.5}]) == 2
    assert delivered([{"north": 1.0}, {"west": 9.0}, {"west": 8.5}]) == 3


def test_metrics_have_the_loss_as_measured_and_as_compared() -> None:
    lines = run_scripted([{"north": 2.0, "west": 8.0}, {"north": 1.0}, {"north": 1.5, "west": 8.5}]).history
    assert [line.held_out_loss for line in lines] == [5.0, 1.0, 5.0]
    assert [line.comparable_loss for line in lines] == [None, 4.0, 4.5]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_resumed_run_selects_the_same_round_as_an_uninterrupted_one(tmp_path: Path, stop: int) -> None:
    everyone = {"north": 1.75, "west": 1.0}  # a lower mean only because other sites evaluated
    evaluations: list[Losses] = [{"north": 3.0, "west": 9.0}, {"north": 2.0}, {"north": 1.5}, everyone]
    whole = run_scripted(evaluations)
    folder, record = RunFolder(tmp_path / "run"), RunRecord({}, "", TrainConfig(rounds=4), "", {})
    with folder.opened(record, resume=False):
        folder.save_state(run_scripted(evaluations[:stop]))
    with folder.opened(record, resume=True) as state:
        resumed = run_scripted(evaluations, state=state)
    assert resumed.selected_round == whole.selected_round == 3
    assert [line.comparable_loss for line in resumed.history] == [line.comparable_loss for line in whole.history]
