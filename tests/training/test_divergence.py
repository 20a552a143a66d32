"""A run that diverged is not delivered, and one that learned nothing warns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedul.data.load import load
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.errors import FedulError
from fedul.methods.fedul import set_task
from fedul.training.divergence import verdict
from fedul.training.train import train

from ..factories import gaussian_study


@pytest.mark.parametrize(
    ("difference", "standard_error", "growth", "expected"),
    [
        (-0.1, 0.01, 1e6, ""),
        (0.02, 0.01, 1e6, ""),
        (0.05, 0.01, 1.0, "worse"),
        (0.05, 0.01, 101.0, "diverged"),
        (1.1, 0.01, 1.0, "diverged"),
        (1.1, 0.5, 1.0, "diverged"),
        (0.05, 0.03, 101.0, ""),
        (0.01, 0.0, 101.0, ""),
    ],
)
def test_a_run_is_worse_beyond_chance_and_diverged_if_loss_or_weights_exploded(
    difference: float, standard_error: float, growth: float, expected: str
) -> None:
    assert verdict(1.0, difference, standard_error, growth) == expected


def test_a_run_that_diverged_leaves_no_classifier(tmp_path: Path) -> None:
    study = load("digits", clients=2, rows=600)
    with pytest.raises(FedulError, match="use a smaller learning rate than 1000 "):
        train(study, rounds=2, method="fedul", learning_rate=1000, out=tmp_path / "run")
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
