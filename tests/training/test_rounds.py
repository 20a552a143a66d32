"""Which round is delivered, when a run ends, and what happens if not every site evaluates every round."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import nn

from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import RoundMetrics, Update, Weights
from fedul.engines.base import Broadcast, EngineMetrics
from fedul.engines.client_store import MemoryStore
from fedul.engines.held_out import TEMPERATURES, HeldOutSums, Reference
from fedul.methods.base import Method
from fedul.methods.fedul import FedUL
from fedul.methods.fedul_refined import FedULRefined
from fedul.training import CallbackList, RunContext, RunFolder, RunInfo, RunRecord
from fedul.training.early_stopping import FIXED_ROUNDS, MAX_ROUNDS, PATIENCE, fix_rounds, is_finished, resolve_rounds
from fedul.training.rounds import iterate_rounds
from fedul.training.selection import TOLERANCE
from fedul.training.state import TrainingState
from fedul.training.steps import complete

from ..factories import make_update, random_federation
from ..worlds import repeatable

Losses = Mapping[str, Sequence[float]]
"""Losses of the held-out rows in a round, by site."""


Absent = Collection[tuple[int, str]]
"""(round, site) that are not evaluated."""


class Scripted:
    """An engine whose sites learn nothing and have given losses; `absent` has (round, site) that are not evaluated."""

    names, warnings = ("site",), ()

    def __init__(self, script: Sequence[Losses], absent: Absent, done: int, *, ahead: bool) -> None:
        self.script, self.absent, self.evaluated, self.piggybacks_evaluation = script, absent, done, ahead
        self.trained, self.epsilon = done, dict[str, float]()

    def begin_round(self, number: int, clients: Sequence[str]) -> None:
        """Rows are not protected."""

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        self.trained = broadcast.round
        delta = {name: tensor * 0 for name, tensor in broadcast.weights.items()}
        return iter([make_update("site", delta, loss=1.0)])

    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> dict[str, HeldOutSums]:
        self.evaluated += 1
        best = None if reference is None else self.script[reference.round - 1]
        now = self.script[self.evaluated - 1]
        return {
            site: sums_of(losses, None if best is None else best[site])
            for site, losses in now.items()
            if (self.evaluated, site) not in self.absent
        }

    def collect_metrics(self) -> EngineMetrics:
        return EngineMetrics()


def sums_of(losses: Sequence[float], reference: Sequence[float] | None) -> HeldOutSums:
    """Sums over rows that have these losses at every temperature."""
    count = len(TEMPERATURES)
    if reference is None:
        return HeldOutSums((sum(losses),) * count, rows=len(losses))
    squares = sum((a - b) ** 2 for a, b in zip(losses, reference, strict=True))
    return HeldOutSums((sum(losses),) * count, (squares,) * count, sum(reference), len(losses))


def run_scripted(
    script: Sequence[Losses],
    absent: Absent = (),
    state: TrainingState | None = None,
    method: Method | None = None,
    rounds: int | None = None,
    *,
    patience: int = 0,
    ahead: bool = False,
) -> TrainingState:
    engine = Scripted(script, absent, state.round if state else 0, ahead=ahead)
    spec = random_federation(1).spec
    context = RunContext(spec, None, nn.Linear(1, 1), "custom", method or FedUL(), Algorithm(), engine, MemoryStore())
    config = TrainConfig(rounds=rounds or len(script), patience=patience)
    return complete(iterate_rounds(context, config, state, None, CallbackList(), RunInfo(0)))


def one_site(*rounds: Sequence[float]) -> list[Losses]:
    return [{"north": losses} for losses in rounds]


def constant(losses: Sequence[float]) -> list[Losses]:
    """A script of one site with two rows that always have the same loss: differences have no standard error."""
    return one_site(*([loss, loss] for loss in losses))


def delivered(script: Sequence[Losses], absent: Absent = ()) -> int:
    return run_scripted(script, absent).selected_round


row_losses = st.lists(st.integers(1, 64).map(lambda number: number / 16), min_size=4, max_size=4)
scripts = st.lists(st.fixed_dictionaries({"north": row_losses, "south": row_losses}), min_size=2, max_size=8)


@repeatable
@given(scripts)
def test_the_delivered_round_ties_with_the_lowest_loss_and_no_later_one_does(script: list[Losses]) -> None:
    rows = np.array([[*losses["north"], *losses["south"]] for losses in script])
    state = run_scripted(script)
    assert state.best is not None
    lowest = rows.mean(1).min()
    assert_allclose(state.best.loss, lowest)
    best = state.best.round - 1
    assert best == np.flatnonzero(np.isclose(rows.mean(1), lowest))[-1]
    differences = rows[best:] - rows[best]
    errors = differences.std(1, ddof=1) / np.sqrt(rows.shape[1])
    ties = np.flatnonzero(differences.mean(1) <= TOLERANCE * errors + 1e-12)
    assert state.selected_round == best + 1 + ties[-1]


@repeatable
@given(scripts, row_losses)
def test_what_all_rounds_have_in_common_does_not_change_the_selection(script: list[Losses], rows: list[float]) -> None:
    # The variance between rows, however large, cancels in paired differences.
    shifted = [
        {**losses, "north": [a + 8 * b for a, b in zip(losses["north"], rows, strict=True)]} for losses in script
    ]
    assert delivered(shifted) == delivered(script)


def test_a_later_round_replaces_the_best_only_if_its_rows_disagree() -> None:
    assert delivered(one_site([1.0, 1.0, 1.0], [1.1, 1.1, 1.1])) == 1  # worse on every row
    assert delivered(one_site([1.0, 1.0, 1.0], [2.0, 0.2, 1.1])) == 2  # worse on average, by chance


@repeatable
@given(scripts)
def test_a_site_that_stops_evaluating_leaves_the_selection_to_the_others(others: list[Losses]) -> None:
    with_west = [{**losses, "west": [9.0, 5.0]} for losses in others]
    absent = {(number, "west") for number in range(2, len(others) + 1)}
    assert delivered(with_west, absent) == delivered(others)


def test_a_round_is_not_selected_because_a_site_with_hard_rows_did_not_evaluate_it() -> None:
    north = [3.0, 2.0, 1.0]
    falling = [{"north": [loss, loss], "west": [9.0, 9.0]} for loss in north]
    assert delivered(falling, {(2, "west")}) == 3
    assert delivered(falling[::-1], {(2, "west"), (3, "west")}) == 1


def test_a_site_that_did_not_evaluate_the_best_round_compares_with_it_all_the_same() -> None:
    script = [{"north": [1.0, 1.0], "west": [9.0, 9.0]}, {"north": [2.0, 2.0], "west": [8.0, 8.0]}]
    assert delivered(script, {(1, "west"), (2, "north")}) == 2
    assert delivered(script, {(1, "north"), (2, "west")}) == 1


def test_metrics_have_the_loss_as_measured_and_as_compared() -> None:
    script = [
        {"north": [2.0, 2.0], "west": [8.0, 8.0]},
        {"north": [1.0, 1.0], "west": [8.0, 8.0]},
        {"north": [1.5, 1.5], "west": [8.5, 8.5]},
    ]
    lines = run_scripted(script, {(2, "west")}).history
    assert [line.held_out_loss for line in lines] == [5.0, 1.0, 5.0]
    assert [line.comparable_loss for line in lines] == [None, 4.0, 4.5]


@pytest.mark.parametrize("patience", [0, 2])
@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_resumed_run_is_the_same_as_an_uninterrupted_one(tmp_path: Path, stop: int, patience: int) -> None:
    script = [{"north": [a, a], "west": [b, b]} for a, b in ((3, 9), (2, 9), (1.5, 9), (1.75, 9), (1.75, 9), (1, 9))]
    absent = {(2, "west"), (3, "west")}
    whole = run_scripted(script, absent, patience=patience)
    folder, record = RunFolder(tmp_path / "run"), RunRecord({}, "", TrainConfig(rounds=6), "", {})
    with folder.opened(record, resume=False):
        folder.save_state(run_scripted(script, absent, rounds=stop, patience=patience))
    with folder.opened(record, resume=True) as state:
        resumed = run_scripted(script, absent, state, patience=patience)
    assert (resumed.round, resumed.selected_round) == (whole.round, whole.selected_round)
    assert (whole.round, whole.selected_round) == ((5, 3) if patience else (6, 6))
    assert [line.comparable_loss for line in resumed.history] == [line.comparable_loss for line in whole.history]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(("patience", "rounds"), [(0, 7), (1, 3), (2, 4), (3, 7), (4, 7)])
def test_a_run_ends_when_no_round_has_been_selected_for_as_many_rounds_as_its_patience(
    patience: int, rounds: int, ahead: bool
) -> None:
    script = constant([3, 2, 2.5, 2.5, 1, 2, 2])
    found = run_scripted(script, patience=patience, ahead=ahead)
    assert len(found.history) == found.round == rounds
    assert found.selected_round == (5 if rounds == 7 else 2)


def test_a_run_that_ended_early_has_ended_when_it_is_resumed_and_continues_without_patience() -> None:
    script = constant([1, 2, 2, 2])
    ended = run_scripted(script, patience=2)
    assert ended.round == 3
    assert run_scripted(script, state=ended, patience=2).round == 3
    assert run_scripted(script, state=ended).round == 4


def test_rounds_that_tie_with_the_best_use_up_no_patience() -> None:
    wavering = one_site([1.0, 1.0, 1.0], *[[2.0, 0.2, 1.1]] * 6)
    assert run_scripted(wavering, patience=2).round == 7


def metrics_of(rounds: int, refined_from: int | None = None) -> list[RoundMetrics]:
    directives = [{"refine": 1.0} if refined_from and n >= refined_from else {} for n in range(1, rounds + 1)]
    return [RoundMetrics(n + 1, 1.0, 2, directive=each, held_out_loss=1.0) for n, each in enumerate(directives)]


def test_the_patience_of_refinement_starts_with_its_first_round() -> None:
    method, config = FedULRefined(), TrainConfig(rounds=100, patience=5)
    start = run_scripted(constant([1]))
    for rounds, refined_from, ended in ((15, None, False), (15, 12, False), (15, 11, True), (16, 12, True)):
        state = replace(start, round=rounds, history=metrics_of(rounds, refined_from))
        assert is_finished(state, config, method) == ended
    assert is_finished(replace(start, round=6, history=metrics_of(6)), config, FedULRefined(trust=0))


def test_without_a_number_of_rounds_the_held_out_loss_decides() -> None:
    assert (resolve_rounds(TrainConfig()).rounds, resolve_rounds(TrainConfig()).patience) == (MAX_ROUNDS, PATIENCE)
    assert resolve_rounds(TrainConfig(patience=3)).patience == 3
    for fixed in (TrainConfig(rounds=7), TrainConfig(rounds=7, patience=2)):
        assert resolve_rounds(fixed) == fix_rounds(fixed) == fixed
    last = resolve_rounds(TrainConfig(select="last"))
    assert (last.rounds, last.patience) == (fix_rounds(TrainConfig()).rounds, 0) == (FIXED_ROUNDS, 0)
