"""Under FedBN batch norm stays at its client, and the delivered classifier has the pooled statistics of all rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor, nn
from torch.testing import assert_close

import fedul
from fedul._utils.files import tensors_digest
from fedul.algorithms.fedavg import FedAvg
from fedul.algorithms.fedbn import FedBN, batch_norms
from fedul.config import TrainConfig
from fedul.core import Update, Weights
from fedul.errors import InputError
from fedul.methods.fedul import FedUL
from fedul.methods.task import Predict, Step
from fedul.models.weights import weights_of
from fedul.training import RunFolder

from ..factories import make_update, random_federation, seeded_network
from ..runs import copy_weights
from ..worlds import repeatable, seeds
from .rounds import Training

NORM = {"2.weight", "2.bias", "2.running_mean", "2.running_var", "2.num_batches_tracked"}


def with_batch_norm() -> nn.Module:
    return seeded_network((2,), 3, nn.BatchNorm1d(6))


@dataclass(frozen=True)
class FedULWithRecord(FedUL):
    """FedUL that records the weights at the start of every step."""

    starts: list[Weights] = field(default_factory=list)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        assert isinstance(predict, nn.Module)
        self.starts.append(copy_weights(predict))
        return super().loss(predict, step)


def recorded() -> Training:
    config = TrainConfig(batch_size="all", learning_rate=0.05)
    return Training(random_federation(), FedBN(), with_batch_norm(), config, FedULWithRecord())


def start_of(training: Training, name: str) -> Weights:
    """The weights that a client starts its round from."""
    assert isinstance(training.method, FedULWithRecord)
    training.method.starts.clear()
    training.round([name])
    return training.method.starts[0]


def part(weights: Weights, names: set[str]) -> str:
    return tensors_digest({name: weights[name] for name in names})


def test_a_client_starts_with_its_batch_norm_and_the_rest_of_the_global_model() -> None:
    training = recorded().rounds(2)
    state = {name: tensor.clone() for name, tensor in training.client_state("c0").items()}
    training.round(["c1", "c2"])
    sent = training.weights
    start = start_of(training, "c0")
    assert part(start, NORM) == tensors_digest(state)
    assert part(start, NORM) != part(sent, NORM)
    assert part(start, set(sent) - NORM) == part(sent, set(sent) - NORM)


def test_the_state_of_a_client_is_its_batch_norm_after_training() -> None:
    training = recorded()
    training.round(["c0"])
    live = {name: tensor for name, tensor in weights_of(training.module).items() if name in NORM}
    state = tensors_digest(training.client_state("c0"))
    assert state == tensors_digest(live)
    training.round(["c1"])
    assert tensors_digest(training.client_state("c0")) == state != tensors_digest(training.client_state("c1"))


def test_a_client_that_is_new_starts_with_the_global_model() -> None:
    training = recorded()
    training.round(["c0"]).round(["c1"])
    sent = training.weights
    assert tensors_digest(start_of(training, "c2")) == tensors_digest(sent)


def test_weights_outside_batch_norm_follow_fedavg() -> None:
    one, other = (
        Training(random_federation(), algorithm, with_batch_norm(), TrainConfig(batch_size=8)).round().weights
        for algorithm in (FedBN(), FedAvg())
    )
    rest = set(one) - {"2.running_var"}
    assert_close({name: one[name] for name in rest}, {name: other[name] for name in rest}, rtol=0, atol=1e-12)
    assert bool((one["2.running_var"] >= other["2.running_var"]).all())
    assert bool((one["2.running_var"] > other["2.running_var"]).any())


def statistics(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows.mean(0), rows.var(0, correction=0)


def update_to(start: Weights, name: str, rows: Tensor, prefix: str = "norm.") -> Update:
    """Of a client whose statistics end as those of its rows."""
    mean, variance = statistics(rows)
    buffers = {
        f"{prefix}running_mean": mean - start[f"{prefix}running_mean"],
        f"{prefix}running_var": variance - start[f"{prefix}running_var"],
    }
    delta = {"w": torch.full((2,), float(len(name))).double()}
    return make_update(name, delta, rows=len(rows), buffers=buffers)


def random_statistics(generator: np.random.Generator, prefix: str = "norm.") -> Weights:
    return {
        "w": torch.zeros(2).double(),
        f"{prefix}running_mean": torch.from_numpy(generator.normal(size=3)),
        f"{prefix}running_var": torch.from_numpy(generator.uniform(0.1, 2, size=3)),
    }


def random_rows(generator: np.random.Generator, count: int) -> Tensor:
    centre, spread = generator.normal(size=3, scale=3), generator.uniform(0, 2, size=3)
    return torch.from_numpy(centre + spread * generator.normal(size=(count, 3)))


@repeatable
@given(seeds, st.integers(1, 6), st.integers(1, 20), st.sampled_from([0.3, 1.0]))
def test_statistics_are_pooled_to_those_of_all_rows_of_equally_large_clients(
    seed: int, clients: int, count: int, step: float
) -> None:
    generator = np.random.default_rng(seed)
    start = random_statistics(generator)
    rows = [random_rows(generator, count) for _ in range(clients)]
    updates = [update_to(start, f"c{c}", some) for c, some in enumerate(rows)]
    found, state = FedBN(step=step).aggregate(start, {}, updates, clients)
    mean, variance = statistics(torch.cat(rows))
    assert_allclose(found["norm.running_mean"], mean, atol=1e-10)
    assert_allclose(found["norm.running_var"], variance, atol=1e-10)
    assert_allclose(found["w"], [2 * step] * 2, atol=1e-12)
    assert state == {}


@repeatable
@given(seeds, st.lists(st.integers(1, 20), min_size=1, max_size=5), st.sampled_from(["norm.", "", "deep.down.norm."]))
def test_by_rows_statistics_are_pooled_to_those_of_all_rows_of_any_clients(
    seed: int, counts: list[int], prefix: str
) -> None:
    generator = np.random.default_rng(seed)
    start = random_statistics(generator, prefix)
    rows = [random_rows(generator, count) for count in counts]
    updates = [update_to(start, f"c{c}", some, prefix) for c, some in enumerate(rows)]
    found, _ = FedBN(weighting="rows").aggregate(start, {}, updates, len(counts))
    mean, variance = statistics(torch.cat(rows))
    assert_allclose(found[f"{prefix}running_mean"], mean, atol=1e-10)
    assert_allclose(found[f"{prefix}running_var"], variance, atol=1e-10)


def test_clients_that_differ_only_in_their_mean_are_pooled_to_a_wider_distribution() -> None:
    start = {"norm.running_mean": torch.zeros(1).double(), "norm.running_var": torch.ones(1).double()}
    updates = [
        make_update(name, buffers={"norm.running_mean": torch.tensor([shift]).double()})
        for name, shift in (("a", -3.0), ("b", 3.0))
    ]
    found, _ = FedBN().aggregate(start, {}, updates, 2)
    assert_close(
        found, {"norm.running_mean": torch.zeros(1).double(), "norm.running_var": torch.tensor([10.0]).double()}
    )


def test_a_client_whose_statistics_did_not_change_counts_with_those_of_the_global_model() -> None:
    start = {"norm.running_mean": torch.tensor([1.0]).double(), "norm.running_var": torch.tensor([2.0]).double()}
    away = {"norm.running_mean": torch.tensor([4.0]).double(), "norm.running_var": torch.tensor([6.0]).double()}
    updates = [make_update("a"), make_update("b", buffers=away)]
    found, _ = FedBN().aggregate(start, {}, updates, 2)
    mean = (1 + 5) / 2
    expected = ((2 + 1**2) + (8 + 5**2)) / 2 - mean**2
    assert_allclose([found["norm.running_mean"].item(), found["norm.running_var"].item()], [mean, expected])


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_pooled_variances_of_single_precision_are_no_less_exact_for_large_means(shift: float) -> None:
    start = {"norm.running_mean": torch.full((1,), shift), "norm.running_var": torch.ones(1)}
    updates = [make_update(name, buffers={"norm.running_var": torch.tensor([0.5])}) for name in "ab"]
    found, _ = FedBN().aggregate(start, {}, updates, 2)
    assert found["norm.running_var"].dtype == torch.float32
    assert_allclose(found["norm.running_var"], [1.5], rtol=1e-5)


def test_layers_with_running_statistics_are_found_wherever_they_are() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.LayerNorm(2))
    assert batch_norms(weights_of(nn.Sequential(inner, nn.BatchNorm1d(2)))) == ["0.1", "1"]
    assert batch_norms(weights_of(nn.BatchNorm1d(2))) == [""]
    assert batch_norms(weights_of(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))) == []


def test_every_client_gets_a_classifier_with_its_batch_norm_in_the_selected_round(tmp_path: Path) -> None:
    training = {"algorithm": "fedbn", "model": with_batch_norm(), "averaging": 0, "select": "last", "rounds": 2}
    federation = random_federation()
    run = fedul.train(federation, **training, out=tmp_path)
    shared, sites = weights_of(run.classifier.module), run.site_classifiers
    assert list(sites) == ["c0", "c1", "c2"]
    stored = {name: RunFolder(tmp_path).load_classifier(with_batch_norm(), name) for name in sites}
    for name, classifier in sites.items():
        own = weights_of(classifier.module)
        assert part(own, set(shared) - NORM) == part(shared, set(shared) - NORM)
        assert part(own, NORM) != part(shared, NORM)
        assert tensors_digest(weights_of(stored[name].module)) == tensors_digest(own)
    assert len({part(weights_of(each.module), NORM) for each in sites.values()}) == 3
    rows = federation.clients[0].inputs
    assert np.abs(sites["c0"].predict_proba(rows) - sites["c1"].predict_proba(rows)).max() > 1e-4


def test_a_resumed_run_delivers_the_same_classifiers_of_clients(tmp_path: Path) -> None:
    options = {"algorithm": "fedbn", "model": with_batch_norm(), "checkpoint_every": 1}
    whole = fedul.train(random_federation(), **options, rounds=3)
    fedul.train(random_federation(), **options, rounds=2, out=tmp_path)
    resumed = fedul.train(random_federation(), **options, rounds=3, out=tmp_path, resume=True)
    for name, classifier in whole.site_classifiers.items():
        other = resumed.site_classifiers[name]
        assert tensors_digest(weights_of(other.module)) == tensors_digest(weights_of(classifier.module))


def test_there_is_no_classifier_of_a_client_where_all_weights_are_shared(tmp_path: Path) -> None:
    run = fedul.train(random_federation(), model=with_batch_norm(), rounds=1, out=tmp_path)
    assert run.site_classifiers == {}
    with pytest.raises(InputError, match="has no classifier of a site 'c0'"):
        RunFolder(tmp_path).load_classifier(with_batch_norm(), "c0")
