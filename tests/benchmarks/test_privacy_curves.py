"""The benchmark of error against epsilon deals every row to one set and states what it measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..places import ROOT


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import privacy_curves

    return privacy_curves


def test_rows_are_in_one_set_whose_priors_are_their_class_shares(curves: Any) -> None:
    federation, inputs, labels = curves.deal_rows("digits", 20, 3, seed=5)
    assert len(inputs) == len(labels)
    index = np.concatenate([client.train.index.numpy() for client in federation.clients])
    assert len(np.unique(index)) == len(index) > 1300
    for client in federation.clients:
        counts = client.priors * np.bincount(client.train.sets.numpy())[:, None]
        assert np.allclose(counts, counts.round())
        assert client.prior_scope.exact


def test_a_run_states_what_it_spent(curves: Any) -> None:
    group = curves.Group("digits", 5, 4, "client_dp_epsilon", {"rounds": 2}, epsilons=(4.0,))
    line = curves.run_one("some", group, 4.0, 3, None)
    assert 3.9 < line["spent"] <= 4.0
    assert 0 < line["error"] < 1
    assert curves.run_one("some", group, 4.0, 3, None)["error"] == line["error"]  # seeded


def test_the_table_has_the_mean_and_the_range_over_seeds(curves: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name = "digits, 5 clients"
    lines = [{"group": name, "epsilon": 1.0, "seed": seed, "error": error} for seed, error in ((0, 0.2), (1, 0.3))]
    curves.report(lines)
    assert "25.0 (20.0-30.0)" in capsys.readouterr().out
