"""Research data is dealt out as the paper's benchmark does it, and the stated priors are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from fedul._utils.randomness import numpy_generator
from fedul.config import BenchmarkDataConfig
from fedul.core import Rows, Scaling, Study, UnlabeledSets
from fedul.core.priors import perturb_priors, sample_priors
from fedul.data.class_mix import parse_class_mix
from fedul.data.partition import client_mix, partition, split_clients
from fedul.data.source import LabelledData
from fedul.errors import InputError

MNIST_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MAJORITIES_OF_THE_APPENDIX = ((4498, 4646), (4425, 4737), (4316, 4217), (4572, 4576), (4418, 4576))
MNIST_LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), MNIST_COUNTS))
SPLITS = ("iid", "noniid", "noniid-text")


def labelled(labels: NDArray[np.int64], test_counts: tuple[int, ...]) -> LabelledData:
    """Rows whose one value is their number."""
    test_labels = np.repeat(np.arange(len(test_counts)), test_counts)
    return LabelledData(
        train_inputs=torch.arange(len(labels))[:, None],
        train_labels=labels,
        test_inputs=torch.arange(len(test_labels))[:, None],
        test_labels=test_labels,
        classes=tuple("abcdefghij"[: len(test_counts)]),
        scaling=Scaling(),
    )


MNIST = labelled(MNIST_LABELS, (50,) * 10)
SMALL = labelled(np.arange(3000) % 10, (40, 30, 50, 30, 30, 60, 30, 30, 31, 32))


def dealt(data: LabelledData = SMALL, **options: Any) -> Study:
    return partition(data, BenchmarkDataConfig(**options))


def pools(split: str, seed: int, held_out: float = 0.2) -> list[NDArray[np.int64]]:
    """The classes (n,) of every client's rows, dealt from MNIST's training labels."""
    kept = np.random.default_rng(seed).permutation(60_000)[round(60_000 * held_out) :]
    return [
        MNIST_LABELS[part] for part in split_clients(MNIST_LABELS, kept, BenchmarkDataConfig(split=split, seed=seed))
    ]


def counts(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.bincount(labels, minlength=10)


def minorities(per_class: NDArray[Any], client: int) -> NDArray[Any]:
    return np.delete(per_class, [2 * client, 2 * client + 1])


def sets_of(rows: Rows) -> list[list[int]]:
    return [rows.index[rows.sets == m].tolist() for m in range(int(rows.sets.max()) + 1)]


def parts_of(client: UnlabeledSets) -> list[set[int]]:
    return [set(client.train.index.tolist()), set(client.held_out.index.tolist())]


def test_fewer_rows_are_drawn_from_all_by_the_seed() -> None:
    few, again, others = dealt(rows=600), dealt(rows=600), dealt(rows=600, seed=1)
    drawn = [study.federation.clients[0].inputs.flatten().tolist() for study in (few, again, others)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 600
    client = few.federation.clients[0]
    assert_array_equal(few.truth.train_labels[client.name], client.inputs[client.train.index, 0] % 10)


def test_more_rows_than_there_are_are_refused() -> None:
    with pytest.raises(InputError, match="rows: there are 3000 training rows, not 3001"):
        dealt(rows=3001)


@pytest.mark.parametrize("split", SPLITS)
def test_held_out_rows_come_from_the_stated_mixture_of_their_set(split: str) -> None:
    # Sets of 24 rows, whose shares are far from what was drawn; non-iid clients have only some of the classes.
    study = dealt(clients=10, sets=10, seed=3, split=split)
    expected, found = np.zeros((0, 10)), np.zeros((0, 10))
    for client in study.federation.clients:
        labels, sets = study.truth.held_out_labels[client.name], client.held_out.sets.numpy()
        mixes = np.stack([counts(labels[sets == m]) for m in range(10)])
        found = np.concatenate([found, mixes])
        expected = np.concatenate([expected, client.priors * mixes.sum(axis=1, keepdims=True)])
    assert not found[expected == 0].any()
    told = expected > 0
    statistic = ((found - expected)[told] ** 2 / expected[told]).sum()
    assert statistic == pytest.approx(told.sum() - len(found), rel=0.2)  # chi-square: its degrees of freedom


@pytest.mark.parametrize("split", SPLITS)
def test_held_out_sets_have_the_relative_sizes_of_the_training_sets(split: str) -> None:
    for client in dealt(split=split, sets=5).federation.clients:
        sizes = np.bincount(client.held_out.sets.numpy(), minlength=5)
        assert_allclose(sizes, client.set_priors * sizes.sum(), atol=1.5)


def test_iid_clients_have_equal_shares_of_the_rows() -> None:
    sizes = [len(part) for part in pools("iid", 0)]
    assert sizes == [9600] * 5


def test_iid_clients_have_the_class_mix_of_the_data() -> None:
    for labels in pools("iid", 0):
        assert_allclose(counts(labels) / len(labels), np.array(MNIST_COUNTS) / 60_000, atol=0.01)


def test_majority_classes_are_as_large_as_in_the_papers_appendix_within_three_percent_of_a_clients_rows() -> None:
    draws = [[counts(labels) for labels in pools("noniid", seed)] for seed in range(10)]
    mean = np.mean(draws, axis=0)  # (clients, classes); the appendix is one such draw
    for client, expected in enumerate(MAJORITIES_OF_THE_APPENDIX):
        found = mean[client, [2 * client, 2 * client + 1]]
        assert_allclose(found / 9600, np.array(expected) / 9600, atol=0.03)


def test_minority_classes_of_a_first_client_have_the_appendixs_mean_count_within_five_percent() -> None:
    draws = [minorities(counts(pools("noniid", seed)[0]), 0) for seed in range(10)]
    assert_allclose(np.mean(draws), np.mean([56, 56, 54, 57, 54, 60, 60, 54]), rtol=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_minority_classes_of_the_appendixs_split_are_under_one_percent_of_a_clients_rows(seed: int) -> None:
    for client, labels in enumerate(pools("noniid", seed)):
        assert (minorities(counts(labels), client) / len(labels)).max() < 0.01


def test_a_class_that_runs_out_leaves_later_clients_with_less_of_it_as_in_the_appendix() -> None:
    found = np.array([counts(labels) for labels in pools("noniid", 0)])
    assert found[:, 5].sum() == (MNIST_LABELS[np.random.default_rng(0).permutation(60_000)[12_000:]] == 5).sum()
    assert found[4, 5] == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_texts_split_has_majorities_of_15_to_25_and_minorities_under_8_percent(seed: int) -> None:
    for client in range(5):
        mix = client_mix("noniid-text", client, 10, np.random.default_rng(seed))
        assert_allclose(mix.sum(), 1)
        assert ((mix[[2 * client, 2 * client + 1]] >= 0.15) & (mix[[2 * client, 2 * client + 1]] <= 0.25)).all()
        assert minorities(mix, client).max() < 0.08


def test_the_texts_split_gives_clients_its_mix_where_no_class_runs_out() -> None:
    labels = pools("noniid-text", 0)[0]
    mix = client_mix("noniid-text", 0, 10, numpy_generator(0, "client mix", 0))
    assert_allclose(counts(labels) / 9600, mix, atol=1 / 9600)


def test_the_texts_split_is_refused_where_minorities_cannot_be_that_small() -> None:
    with pytest.raises(InputError, match="noniid-text: minority classes under 8 % are impossible with 4 classes"):
        client_mix("noniid-text", 0, 4, np.random.default_rng(0))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("overlap", [True, False])
def test_no_training_row_is_with_two_clients_or_held_out(split: str, overlap: bool) -> None:
    study = dealt(split=split, sets=3, sets_overlap=overlap)
    train, held_out = zip(*(parts_of(client) for client in study.federation.clients), strict=True)
    assert sum(len(part) for part in train) == len(set().union(*train)) > 0
    assert not set().union(*train) & set().union(*held_out)


@pytest.mark.parametrize("split", SPLITS)
def test_overlapping_sets_draw_without_replacement_within_a_set(split: str) -> None:
    for client in dealt(split=split).federation.clients:
        assert all(len(rows) == len(set(rows)) for rows in sets_of(client.train))


def test_overlapping_sets_share_rows_and_disjoint_ones_do_not() -> None:
    for overlap in (True, False):
        for client in dealt(sets_overlap=overlap).federation.clients:
            assert (len(parts_of(client)[0]) < len(client.train)) == overlap


@pytest.mark.parametrize("options", [{}, {"sets_overlap": False}, {"split": "noniid"}, {"split": "noniid-text"}])
def test_realised_priors_are_exactly_the_class_shares_of_each_sets_rows(options: dict[str, Any]) -> None:
    study = dealt(**options)
    for client in study.federation.clients:
        labels = study.truth.train_labels[client.name]
        for m, told in enumerate(client.priors):
            found = counts(labels[client.train.sets.numpy() == m])
            assert_array_equal(told, found / found.sum())


def test_drawn_priors_are_stated_as_they_were_drawn() -> None:
    for client in dealt(prior_source="drawn", sets=20).federation.clients:
        assert_array_equal(client.priors, sample_priors("boosted", 20, 10, numpy_generator(0, "priors", client.name)))


@pytest.mark.parametrize("options", [{"split": "noniid"}, {"sets_overlap": False}])
def test_drawn_priors_are_refused_where_a_class_runs_out(options: dict[str, Any]) -> None:
    with pytest.raises(
        InputError,
        match=r"prior-source drawn: client-\d runs out of class \d in set \d+ \(\d+ (train|held-out) rows left",
    ):
        dealt(prior_source="drawn", **options)


def test_sets_of_a_client_have_equal_sizes_unless_a_class_runs_out() -> None:
    for client in dealt(split="iid", prior_recipe="text").federation.clients:
        assert [len(rows) for rows in sets_of(client.train)] == [48] * 10


def test_clients_may_have_different_numbers_of_sets() -> None:
    study = dealt(sets="10,20,30,40,50")
    assert [len(client.priors) for client in study.federation.clients] == [10, 20, 30, 40, 50]


def test_more_sets_than_rows_are_refused_by_the_clients_name() -> None:
    with pytest.raises(InputError, match="client-1: 120 held-out rows cannot fill 200 sets; use fewer sets"):
        dealt(sets=200)


def test_held_out_sets_are_drawn_by_the_same_priors_as_training_sets() -> None:
    study = dealt(MNIST)
    for client in study.federation.clients:
        labels = study.truth.held_out_labels[client.name]
        shares = [counts(labels[client.held_out.sets.numpy() == m]) / 240 for m in range(10)]
        assert_allclose(shares, client.priors, atol=0.13)


def test_with_a_held_out_share_of_0_all_rows_are_assigned_to_clients() -> None:
    assert all(len(client.held_out) == 0 for client in dealt(held_out=0).federation.clients)
    assert sum(len(labels) for labels in pools("iid", 0, held_out=0)) == 60_000


@pytest.mark.parametrize(("formula", "epsilon"), [("intended", 0.4), ("printed", 0.8), ("printed", 0.0)])
def test_noise_changes_the_stated_priors_and_not_the_rows(formula: str, epsilon: float) -> None:
    clean, noisy = dealt(), dealt(prior_noise=epsilon, noise_formula=formula)
    for before, after in zip(clean.federation.clients, noisy.federation.clients, strict=True):
        expected = perturb_priors(before.priors, epsilon, numpy_generator(0, "noise", before.name), formula=formula)
        assert_array_equal(after.priors, expected)
        assert np.abs(after.priors - before.priors).max() > 0.01
        assert_array_equal(after.train.index, before.train.index)


def test_the_printed_noise_formula_is_clean_at_one_half() -> None:
    pairs = zip(
        dealt().federation.clients, dealt(prior_noise=0.5, noise_formula="printed").federation.clients, strict=True
    )
    assert all(np.array_equal(before.priors, after.priors) for before, after in pairs)


def test_priors_from_a_table_decide_the_sets(tmp_path: Path) -> None:
    header = "client,set," + ",".join(SMALL.classes)
    pure = "\n".join(f"client-{c},{m},{','.join('01'[k == m] for k in range(10))}" for c in (2, 1) for m in range(10))
    (tmp_path / "priors.csv").write_text(f"{header}\n{pure}\n")
    study = dealt(clients=2, sets=3, priors=str(tmp_path / "priors.csv"))
    for client in study.federation.clients:
        assert_array_equal(client.priors, np.eye(10))
        assert_array_equal(study.truth.train_labels[client.name], client.train.sets)


@pytest.mark.parametrize("split", SPLITS)
def test_dealing_repeats_with_its_seed_and_differs_by_seed(split: str) -> None:
    prints = [dealt(split=split, seed=seed).federation.fingerprint() for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


def test_labels_are_those_of_the_rows() -> None:
    study = dealt(split="noniid")
    for client in study.federation.clients:
        assert_array_equal(study.truth.train_labels[client.name], SMALL.train_labels[client.train.index])
        assert_array_equal(study.truth.held_out_labels[client.name], SMALL.train_labels[client.held_out.index])


def test_a_uniform_test_population_is_exactly_uniform_and_as_large_as_can_be() -> None:
    study = dealt(test_prior="uniform")
    assert_array_equal(counts(study.truth.test_labels), [30] * 10)
    assert_allclose(study.federation.test_prior, [0.1] * 10)


def test_a_uniform_population_uses_every_row_of_the_rarest_class_also_where_shares_are_not_round() -> None:
    for rarest in range(1, 60):
        data = labelled(np.arange(300) % 3, (60, rarest, 60))
        assert_array_equal(np.bincount(dealt(data, sets=3).truth.test_labels), [rarest] * 3)


def test_a_given_test_prior_is_followed() -> None:
    data = labelled(np.arange(300) % 3, (100, 100, 100))
    study = dealt(data, sets=3, test_prior="a=0.5,c=0.3,b=0.2")
    assert_array_equal(np.bincount(study.truth.test_labels), [100, 40, 60])
    assert_allclose(study.federation.test_prior, [0.5, 0.2, 0.3])


def test_a_given_test_prior_that_the_rows_have_already_leaves_none_out() -> None:
    study = dealt(labelled(np.arange(300) % 2, (7, 93)), sets=2, test_prior="a=0.07,b=0.93")
    assert_array_equal(np.bincount(study.truth.test_labels), [7, 93])


def test_the_natural_test_population_is_all_rows() -> None:
    study = dealt(test_prior="natural")
    assert_array_equal(study.truth.test_labels, SMALL.test_labels)
    assert_array_equal(study.truth.test_inputs, SMALL.test_inputs)
    assert_allclose(study.federation.test_prior, counts(SMALL.test_labels) / len(SMALL.test_labels))


def test_test_rows_carry_their_own_labels_and_none_is_drawn_twice() -> None:
    study = dealt(test_prior="uniform")
    drawn = study.truth.test_inputs[:, 0].numpy()
    assert len(np.unique(drawn)) == len(drawn)
    assert_array_equal(study.truth.test_labels, SMALL.test_labels[drawn])


def test_test_rows_are_dealt_out_evenly_to_clients() -> None:
    assert_array_equal(np.bincount(dealt(clients=3, sets=4).truth.test_clients), [100] * 3)


def test_a_class_without_test_rows_is_refused() -> None:
    with pytest.raises(
        InputError, match="test-prior: there is no test row of class 'b'; use natural, or drop the class"
    ):
        dealt(labelled(np.arange(300) % 3, (10, 0, 10)), sets=3)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=0.5", "no share for class 'b'"),
        ("a=0.5,b=0.5,c=0", "'c=0' is not CLASS=SHARE with a class of a, b"),
        ("a=0.5,a=0.5", "'a=0.5' is not CLASS=SHARE"),
        ("even", "'even' is not CLASS=SHARE"),
        ("a=half,b=half", "has a share that is not a number"),
        ("a=nan,b=0.5", "missing or infinite"),
        ("a=0.5,b=0.6", "sums to 1.1"),
    ],
)
def test_a_test_prior_that_is_none_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=f"^test-prior: .*{complaint}"):
        parse_class_mix(text, ("a", "b"), where="test-prior")


def test_a_test_population_without_one_of_the_classes_is_refused() -> None:
    shares = [0.0, *[1 / (len(SMALL.classes) - 1)] * (len(SMALL.classes) - 1)]
    prior = ",".join(f"{name}={share}" for name, share in zip(SMALL.classes, shares, strict=True))
    with pytest.raises(InputError, match=f"^test-prior: class '{SMALL.classes[0]}' has share 0"):
        dealt(test_prior=prior)


def test_a_class_may_have_an_equals_sign_in_its_name() -> None:
    assert_allclose(parse_class_mix("x=1=0.25, x=2=0.75", ("x=1", "x=2"), where="test-prior"), [0.25, 0.75])
