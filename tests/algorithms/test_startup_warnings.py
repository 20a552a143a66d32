"""Impossible settings are refused, and settings without effect give a warning."""

from __future__ import annotations

import pytest
import torch

from fedul.algorithms import make_algorithm
from fedul.errors import InputError


def test_scaffold_counts_clients_the_same() -> None:
    with pytest.raises(InputError, match=r"weighting: 'rows' is not possible"):
        make_algorithm("scaffold", {"weighting": "rows"})


def test_fedbn_without_batch_norm_gives_a_warning() -> None:
    assert make_algorithm("fedbn", {}).startup_warnings({"w": torch.zeros(1)}, 5) != []
    assert (
        make_algorithm("fedbn", {}).startup_warnings(
            {n: torch.zeros(1) for n in ("b.running_mean", "b.running_var")}, 5
        )
        == []
    )


@pytest.mark.parametrize(("clients", "warns"), [(4, True), (5, False)])
def test_trimming_less_than_one_client_gives_a_warning(clients: int, warns: bool) -> None:
    assert bool(make_algorithm("trimmed-mean", {"trim": 0.2}).startup_warnings({}, clients)) == warns
