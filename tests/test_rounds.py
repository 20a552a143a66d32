"""Which round is delivered, where not every site judges every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedul.algorithms.base import Algorithm, Update, Weights
from fedul.config import TrainConfig
from fedul.engines.inprocess import Engine
from fedul.engines.local import Broadcast
from fedul.engines.store import InMemory
from fedul.federation import Federation
from fedul.methods.fedul import TEMPERATURES, FedUL, HeldOut
from fedul.rounds import Parts, run_rounds
from fedul.runs import RunFolder, State
from fedul.training import Quiet

from .algorithms.federations import bowls_of, federation_of
from .worlds import repeatable

ROWS = 4
Judgement = Mapping[str, float]
"""The loss of each site that judged a round."""


class Scripted:
    """Sites that learn nothing and judge as they are told."""

    names, remarks, judges_along = ("site",), (), False

    def __init__(self, judgements: Sequence[Judgement], spread: float) -> None:
        self._judgements, self._spread = iter(judgements), spread

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        delta = {name: tensor * 0 for name, tensor in broadcast.weights.items()}
        return iter([Update("site", delta, rows=1, steps=1, loss=1.0)])

    def held_out(self, weights: Weights) -> dict[str, HeldOut]:
        return {name: sums_of(loss, self._spread) for name, loss in next(self._judgements).items()}

    def noted(self) -> dict[str, Any]:
        return {}


def sums_of(loss: float, spread: float) -> HeldOut:
    """Sums over rows of this mean loss and standard deviation."""
    losses, squares = (ROWS * value for value in (loss, loss**2 + spread**2))
    count = len(TEMPERATURES)
    return HeldOut((losses,) * count, (squares,) * count, (0.0,) * count, ROWS)


def parts(engine: Engine) -> Parts:
    federation: Federation = federation_of(bowls_of(0, [1]))
    return Parts(federation, None, nn.Linear(1, 1), "custom", FedUL(), Algorithm(), engine, InMemory())


def judged(judgements: Sequence[Judgement], spread: float = 0.0, begun: State | None = None) -> State:
    engine = Scripted(judgements[begun.round if begun else 0 :], spread)
    return run_rounds(parts(engine), TrainConfig(rounds=len(judgements)), begun, None, Quiet())


def delivered(judgements: Sequence[Judgement], spread: float = 0.0) -> int:
    return judged(judgements, spread).selected_round


losses = st.integers(1, 64).map(lambda number: number / 16)
of_two = st.lists(st.fixed_dictionaries({"north": losses, "south": losses}), min_size=2, max_size=8)


@repeatable
@given(of_two, losses, st.sampled_from([0.0, 1.0]))
def test_a_site_that_goes_silent_for_good_leaves_the_choice_to_the_others(
    others: list[dict[str, float]], hard: float, spread: float
) -> None:
    assert delivered([{**others[0], "west": 8 * hard}, *others[1:]], spread) == delivered(others, spread)


def test_a_round_does_not_win_because_a_site_with_hard_rows_was_silent() -> None:
    north = [3.0, 2.0, 1.0]
    everyone = [{"north": loss, "west": 9.0} for loss in north]
    assert delivered([everyone[0], {"north": north[1]}, everyone[2]]) == 3
    rising = [{"north": loss, "west": 9.0} for loss in reversed(north)]
    assert delivered([rising[0], {"north": 2.0}, {"north": 3.0}]) == 1


def test_who_judged_both_of_two_rounds_compares_them_whoever_was_silent_between() -> None:
    lines = [{"north": 2.0, "west": 4.0}, {"north": 3.0}, {"north": 2.5, "west": 3.0}]
    assert delivered(lines) == 3
    assert delivered([*lines[:2], {"north": 2.5, "west": 5.0}]) == 1


def test_rounds_that_nobody_judged_both_of_cannot_be_told_apart_and_the_later_is_compared_with() -> None:
    assert delivered([{"north": 1.0}, {"west": 9.0}]) == 2
    assert delivered([{"north": 1.0}, {"west": 9.0}, {"west": 9.5}]) == 2
    assert delivered([{"north": 1.0}, {"west": 9.0}, {"west": 8.5}]) == 3


def test_losses_are_on_record_as_found_and_as_they_compare() -> None:
    lines = judged([{"north": 2.0, "west": 8.0}, {"north": 1.0}, {"north": 1.5, "west": 8.5}]).history
    assert [line["held_out_loss"] for line in lines] == [5.0, 1.0, 5.0]
    assert [line.get("comparable_loss") for line in lines] == [None, 4.0, 4.5]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_that_is_taken_up_again_chooses_as_if_it_had_not_been_stopped(tmp_path: Path, stop: int) -> None:
    everyone = {"north": 1.75, "west": 1.0}  # lower than all before, but for who judged them
    judgements: list[Judgement] = [{"north": 3.0, "west": 9.0}, {"north": 2.0}, {"north": 1.5}, everyone]
    whole = judged(judgements)
    folder, config = RunFolder(tmp_path / "run"), {"training": {"rounds": 4}}
    with folder.opened(config, resume=False):
        folder.save_state(judged(judgements[:stop]))
    with folder.opened(config, resume=True) as begun:
        found = judged(judgements, begun=begun)
    assert found.selected_round == whole.selected_round == 3
    assert [line.get("comparable_loss") for line in found.history] == [
        line.get("comparable_loss") for line in whole.history
    ]
