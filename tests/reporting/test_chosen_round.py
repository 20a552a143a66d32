"""The page says in one sentence which round is delivered, and why."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.reporting.chosen_round import explain_round
from fedul.training import DataCounts, RunResult


def result(rounds: int, selected: int) -> RunResult:
    return RunResult(rounds, selected, None, 0, "cd34", DataCounts(2, 4, 1000, 200), 0.4)


def history(*losses: float | None) -> list[RoundMetrics]:
    return [
        RoundMetrics(i, 1.0, 2, held_out_loss=loss, held_out_error=0.25 / i) for i, loss in enumerate(losses, start=1)
    ]


@pytest.mark.parametrize(
    ("losses", "selected", "training", "said"),
    [
        (
            (0.9, 0.7, 0.8),
            2,
            TrainConfig(rounds=3),
            "Round 2 of 3 is delivered because its loss on held-out rows is the lowest (0.7).",
        ),
        (
            (0.9, 0.7, 0.71),
            3,
            TrainConfig(rounds=3),
            "Round 3 of 3 is delivered because it is the last one whose loss on held-out rows (0.71) does not differ "
            "from the lowest (0.7, round 2) by more than half a standard error.",
        ),
        (
            (0.9, 0.7, 0.8, 0.9),
            2,
            TrainConfig(rounds=80, patience=2),
            "Round 2 of 4 is delivered because its loss on held-out rows is the lowest (0.7). Training ended "
            "early: none of the last 2 rounds was as good.",
        ),
        ((0.9, 0.7), 2, TrainConfig(rounds=2, select="last"), "Round 2 of 2 is delivered because it is the last one."),
        (
            (0.9, 0.7),
            2,
            TrainConfig(rounds=2, select="held-out-error"),
            "Round 2 of 2 is delivered because it has the fewest errors on held-out rows with labels (12.5\u00a0%).",
        ),
        ((None, None), 2, TrainConfig(rounds=2), "Round 2 of 2 is delivered."),
        ((0.9, float("nan")), 1, TrainConfig(rounds=2), "Round 1 of 2 is delivered because its loss"),
        ((), 2, TrainConfig(rounds=2), "Round 2 of 2 is delivered."),
    ],
)
def test_the_delivered_round_comes_with_its_reason(
    losses: Sequence[float | None], selected: int, training: TrainConfig, said: str
) -> None:
    rounds = len(losses) or 2
    assert explain_round(result(rounds, selected), training, history(*losses)).startswith(said)


def test_rounds_are_compared_on_the_same_rows_where_sites_differ() -> None:
    metrics = [
        RoundMetrics(1, 1.0, 2, held_out_loss=0.5),
        RoundMetrics(2, 1.0, 2, held_out_loss=0.6, comparable_loss=0.4),
    ]
    assert "the lowest (0.4)" in explain_round(result(2, 2), TrainConfig(rounds=2), metrics)
