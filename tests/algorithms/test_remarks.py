"""Settings that cannot mean what they say are refused, and those that mean something else are told."""

from __future__ import annotations

import pytest
import torch

from fedul.algorithms import make_algorithm
from fedul.errors import InputError


def test_scaffold_counts_clients_the_same() -> None:
    with pytest.raises(InputError, match=r"weighting: 'rows' is not possible here"):
        make_algorithm("scaffold", {"weighting": "rows"})


def test_a_model_without_batch_norm_is_told_that_fedbn_is_fedavg_there() -> None:
    assert make_algorithm("fedbn", {}).remarks({"w": torch.zeros(1)}, 5) != []
    assert (
        make_algorithm("fedbn", {}).remarks({n: torch.zeros(1) for n in ("b.running_mean", "b.running_var")}, 5) == []
    )


@pytest.mark.parametrize(("clients", "told"), [(4, True), (5, False)])
def test_trimming_less_than_one_client_is_told(clients: int, told: bool) -> None:
    assert bool(make_algorithm("trimmed-mean", {"trim": 0.2}).remarks({}, clients)) == told
