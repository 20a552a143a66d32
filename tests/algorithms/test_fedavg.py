"""FedAvg is the mean of clients' models, made from one update at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from fedul._utils.files import tensors_digest
from fedul.algorithms import make_algorithm
from fedul.algorithms.fedavg import FedAvg
from fedul.core import Update, Weights
from fedul.errors import EnvironmentFailure, InputError

from ..factories import make_update
from ..worlds import repeatable, seeds

START = {"w": torch.tensor([1.0, -2.0]), "count": torch.tensor(10)}


def update(name: str, move: list[float], count: float = 0.0, rows: int = 10) -> Update:
    buffers = {"count": torch.tensor(count, dtype=torch.float64)}
    return make_update(name, {"w": torch.tensor(move)}, rows=rows, buffers=buffers)


def averaged(algorithm: FedAvg, *updates: Update) -> Weights:
    return algorithm.aggregate(START, {}, updates, len(updates))[0]


TWO = (update("a", [1.0, 0.0], rows=10), update("b", [4.0, 3.0], rows=20))


def test_clients_count_the_same_by_default() -> None:
    assert_close(averaged(FedAvg(), *TWO)["w"], torch.tensor([3.5, -0.5]))


def test_clients_may_count_by_their_rows() -> None:
    assert_close(averaged(FedAvg(weighting="rows"), *TWO)["w"], torch.tensor([4.0, 0.0]))


@pytest.mark.parametrize("step", [0.0, 0.5, 2.0])
def test_the_global_step_scales_the_mean_update(step: float) -> None:
    expected = torch.tensor([1.0 + 2.5 * step, -2.0 + 1.5 * step])
    assert_close(averaged(FedAvg(step=step), *TWO)["w"], expected)


@repeatable
@given(seeds, st.integers(1, 6), st.sampled_from(["uniform", "rows"]))
def test_with_a_step_of_one_the_next_model_is_the_weighted_mean_of_the_clients_models(
    seed: int, clients: int, weighting: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    start = {"w": torch.randn(3, 2, generator=generator, dtype=torch.float64)}
    models = torch.randn(clients, 3, 2, generator=generator, dtype=torch.float64)
    rows = torch.randint(1, 100, (clients,), generator=generator)
    share = (rows if weighting == "rows" else torch.ones(clients)) / (rows.sum() if weighting == "rows" else clients)
    updates = [
        make_update(str(c), {"w": model - start["w"]}, rows=int(n))
        for c, (model, n) in enumerate(zip(models, rows, strict=True))
    ]
    found, _ = FedAvg(weighting=weighting).aggregate(start, {}, updates, clients)
    assert_close(found["w"], torch.einsum("c,cij->ij", share.double(), models), rtol=1e-6, atol=1e-7)


def test_a_single_client_hands_over_its_weights() -> None:
    assert_close(
        averaged(FedAvg(), update("a", [0.25, 0.5], count=7)),
        {"w": torch.tensor([1.25, -1.5]), "count": torch.tensor(17)},
    )


@pytest.mark.parametrize(("counts", "expected"), [((3, 5), 14), ((3, 4), 14), ((2, 3, 3), 13), ((0, 0), 10)])
def test_integer_buffers_are_averaged_rounded_and_stay_integers(counts: tuple[int, ...], expected: int) -> None:
    found = averaged(FedAvg(), *(update(str(c), [0.0, 0.0], count) for c, count in enumerate(counts)))["count"]
    assert found.dtype == torch.int64
    assert found == expected


@pytest.mark.parametrize("precision", [torch.float16, torch.float32, torch.float64])
def test_weights_keep_their_precision(precision: torch.dtype) -> None:
    start = {"w": torch.ones(2, dtype=precision)}
    found, _ = FedAvg().aggregate(start, {}, [make_update("a", {"w": torch.ones(2, dtype=precision)})], 1)
    assert found["w"].dtype == precision


def test_weights_and_updates_that_were_given_are_left_as_they_are() -> None:
    before = tensors_digest(START), [tensors_digest({**u.delta, **u.buffers}) for u in TWO]
    averaged(FedAvg(step=0.5), *TWO)
    assert (tensors_digest(START), [tensors_digest({**u.delta, **u.buffers}) for u in TWO]) == before


def spoiled_when_the_next_is_asked_for(updates: tuple[Update, ...]) -> Iterator[Update]:
    """As an engine does that reuses its memory."""
    delta, buffers = (
        {name: torch.empty_like(tensor) for name, tensor in group.items()}
        for group in (updates[0].delta, updates[0].buffers)
    )
    memory: dict[str, Tensor] = {**delta, **buffers}
    for one in updates:
        for name, tensor in {**one.delta, **one.buffers}.items():
            memory[name].copy_(tensor)
        yield Update(one.client, delta, one.rows, one.steps, one.loss, buffers)
        for tensor in memory.values():
            tensor.fill_(float("nan"))


def test_updates_are_used_one_by_one_and_never_held() -> None:
    many = tuple(update(str(c), [float(c), -1.0], count=c) for c in range(20))
    streamed, _ = FedAvg().aggregate(START, {}, spoiled_when_the_next_is_asked_for(many), len(many))
    assert tensors_digest(streamed) == tensors_digest(averaged(FedAvg(), *many))


def test_a_round_without_an_update_is_an_environment_failure() -> None:
    with pytest.raises(EnvironmentFailure, match="no client sent an update in this round"):
        averaged(FedAvg())


def test_the_server_has_no_state_between_rounds() -> None:
    assert FedAvg().aggregate(START, {}, TWO, 2)[1] == {}
    assert FedAvg().broadcast({}) == {}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"weighting": "row"}, "weighting: 'row' is not one of uniform, rows"),
        ({"step": -1}, "step: must be at least 0"),
        ({"stp": 1}, "unknown option of algorithm fedavg 'stp': did you mean 'step'"),
    ],
)
def test_an_invalid_option_is_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make_algorithm("fedavg", options)


def test_an_unknown_algorithm_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="unknown algorithm 'fedavgg': did you mean 'fedavg'"):
        make_algorithm("fedavgg", {})
