"""A run that diverged is not delivered, and one that learned nothing warns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.engines.held_out import HeldOutEvaluator
from fedul.errors import FedulError
from fedul.methods.fedul import set_task
from fedul.training import CollectWarnings
from fedul.training.divergence import Start, check_diverged
from fedul.training.state import TrainingState
from fedul.training.train import train

from ..factories import gaussian_study

CONFIG = TrainConfig(learning_rate=1000)


def state(loss: float | None, largest: float = 1.0) -> TrainingState:
    weights = {"w": torch.tensor([-largest, 0.5])}
    history = [RoundMetrics(round=1, loss=1.0, clients=2, held_out_loss=loss)]
    return replace(TrainingState.initial(weights), round=1, selected=weights, selected_round=1, history=history)


def warnings_of(start: Start | None, after: TrainingState) -> list[str]:
    collected = CollectWarnings()
    check_diverged(start, after, CONFIG, collected)
    return collected.messages


def test_a_run_that_is_as_good_as_before_training_passes() -> None:
    assert warnings_of(Start(1.0, 1.0), state(1.01, largest=1e6)) == []
    assert warnings_of(Start(None, 1.0), state(None)) == []
    assert warnings_of(None, state(99.0)) == []


def test_a_run_that_is_worse_than_before_training_warns() -> None:
    (message,) = warnings_of(Start(1.0, 1.0), state(1.5))
    assert "the held-out loss is 1.5 in round 1 and was 1 before training" in message
    assert "use a smaller learning rate than 1000 (--learning-rate)" in message


@pytest.mark.parametrize(("loss", "largest"), [(2.1, 1.0), (1.05, 101.0)])
def test_a_loss_far_above_that_before_training_or_exploded_weights_are_refused(loss: float, largest: float) -> None:
    with pytest.raises(FedulError, match=r"the training diverged .* no classifier is delivered; use a smaller"):
        warnings_of(Start(1.0, 1.0), state(loss, largest))


def test_a_run_that_diverged_leaves_no_classifier(tmp_path: Path) -> None:
    with pytest.raises(FedulError, match="the training diverged"):
        train(gaussian_study(), rounds=3, method="fedul", learning_rate=1000, out=tmp_path / "run")
    assert not (tmp_path / "run/model").exists()
    assert not (tmp_path / "run/result.json").exists()


def test_huge_logits_do_not_have_loss_0() -> None:
    federation = gaussian_study().federation
    tasks = [set_task(client, client.held_out, federation.spec) for client in federation.clients]
    evaluator = HeldOutEvaluator(tasks)
    rows = sum(len(client.held_out) for client in federation.clients)
    right = torch.zeros(rows, len(federation.classes))
    right[:, 0] = 40.0
    huge = right * 1e8
    assert min(evaluator.sums(huge).losses) == pytest.approx(evaluator.sums(right).losses[0], rel=1e-4)
