"""Clients and federations: validation, held-out rows and the fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedul.core import Federation, Rows, Scaling, Study, UnlabeledSets, check_identifiability
from fedul.errors import InputError

from ..factories import CLASSES, PRIORS, federation_with_priors, make_client, make_rows
from ..worlds import random_priors, repeatable, seeds


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sets": np.arange(11) % 3}, "12 rows but 11 set numbers; give one for each row"),
        ({"sets": np.arange(13) % 3}, "12 rows but 13 set numbers"),
        ({"sets": np.arange(12) % 4}, r"set numbers must lie in 0\.\.2, one for each row of its class priors"),
        ({"sets": np.arange(12) % 3 - 1}, r"set numbers must lie in 0\.\.2"),
        ({"sets": np.arange(12) % 3 + 0.5}, "set numbers must be whole numbers"),
        ({"sets": ["a"] * 12}, "set numbers must be whole numbers"),
        ({"sets": np.zeros((12, 1), int)}, "set numbers must be whole numbers"),
        ({"sets": np.arange(12) % 2}, "set '3' has no rows to train on; drop it or give it rows"),
        ({"inputs": torch.zeros(0, 2), "sets": np.zeros(0, int)}, "set '1' has no rows to train on"),
        ({"inputs": np.zeros(12)}, "its rows are not a table of numbers"),
        ({"inputs": [["a", "b"]] * 12}, "its rows are not a table of numbers"),
        ({"inputs": [[1.0, 2.0]] * 11 + [[1.0]]}, "its rows are not a table of numbers"),
        ({"inputs": [[1.0, 2.0]] * 11 + [[1.0, float("nan")]]}, "row 12 has a value that is missing or infinite"),
        ({"inputs": [[float("inf"), 2.0]] + [[1.0, 1.0]] * 11}, "row 1 has a value that is missing or infinite"),
        ({"held_out": 1}, r"held_out is a share in 0\.\.1 \(below 1\), got 1"),
        ({"held_out": -0.1}, "held_out is a share"),
        ({"held_out": float("nan")}, "held_out is a share"),
        ({"priors": [[0.5, 0.5, 0], [0.1, 0.2, 0.3], [1, 0, 0]]}, "row 2 sums to 0.6, not to 1"),
        ({"priors": [[0.5, 0.5], [1], [1, 0]]}, "not a table of numbers"),
    ],
)
def test_a_client_that_makes_no_sense_is_refused_by_its_name(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=f"client 'north': .*{complaint}"):
        make_client(**changes)


def test_clients_federations_and_studies_print_counts_and_no_rows() -> None:
    federation = federation_with_priors(PRIORS, PRIORS, rows=2)
    assert repr(federation) == "<Federation of 2 clients, 6 sets, 12 rows and 3 classes>"
    assert repr(Study(federation, None)) == "<Study of 2 clients, 6 sets, 12 rows and 3 classes>"
    client = UnlabeledSets.from_arrays(7, np.zeros((12, 2)), np.arange(12) % 3, PRIORS, held_out=0)  # type: ignore[arg-type]
    assert repr(client) == "<UnlabeledSets of client '7': 3 sets, 12 rows to train on and 0 held out>"


def test_a_client_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="a client has an empty name"):
        make_client("")


@pytest.mark.parametrize("index", [[0, 12, 2], [0, -1, 2]])
@pytest.mark.parametrize("part", ["train", "held_out"])
def test_a_row_number_beyond_the_inputs_is_refused(part: str, index: list[int]) -> None:
    with pytest.raises(InputError, match=r"client 'north': row numbers must lie in 0\.\.11"):
        replace(make_client(), **{part: make_rows(index, [0, 1, 2])})


def test_rows_without_a_set_number_each_are_refused() -> None:
    with pytest.raises(InputError, match="client 'north': 3 rows but 2 set numbers"):
        replace(make_client(), train=make_rows([0, 1, 2], [0, 1]))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Federation([], CLASSES), "needs at least one client"),
        (lambda: Federation([make_client()], ["cat"]), "at least two classes"),
        (lambda: Federation([make_client()], ["cat", "dog", "cat"]), "with different names"),
        (lambda: Federation([make_client(), make_client()], CLASSES), "two clients are called 'north'"),
        (lambda: Federation([make_client()], ["cat", "dog"]), "priors of client 'north': 3 columns for 2 classes"),
        (
            lambda: Federation([make_client(), make_client("south", inputs=torch.zeros(12, 3))], CLASSES),
            r"client 'south': rows of shape \(3,\), but client 'north' has \(2,\)",
        ),
        (
            lambda: federation_with_priors([[0.5, 0.5, 0], [1, 0, 0]], [[0, 1, 0]]),
            "class 'owl' has prior 0 in every set",
        ),
        (lambda: Federation([make_client()], CLASSES, np.array([0.5, 0.5, 0])), "test prior: class 'owl' has share 0"),
        (lambda: Federation([make_client()], CLASSES, np.array([0.5, 0.5])), "test prior: 2 columns for 3 classes"),
    ],
)
def test_a_federation_that_makes_no_sense_is_refused(make: Callable[[], Federation], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        make()


def test_a_client_has_no_field_that_could_hold_a_label() -> None:
    names = {"name", "inputs", "train", "held_out", "priors", "set_names", "labelled_sets", "prior_scope"}
    assert {f.name for f in fields(UnlabeledSets)} == names


def test_rows_of_labelled_sets_are_counted_in_training_and_held_out_rows() -> None:
    made = UnlabeledSets.from_arrays("a", torch.zeros(20, 1), [0] * 10 + [1] * 10, [[0.5, 0.5], [1, 0]], held_out=0.2)
    assert made.labelled_rows == 0
    assert replace(made, labelled_sets=[1]).labelled_rows == 10
    with pytest.raises(InputError, match="client 'a': labelled set 0 needs one-hot priors"):
        replace(made, labelled_sets=[0])


def test_the_test_prior_is_uniform_unless_given() -> None:
    assert_allclose(Federation([make_client()], CLASSES).test_prior, [1 / 3] * 3)


@repeatable
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.floats(0, 0.99), seeds)
def test_a_share_of_every_set_is_held_out_but_never_its_only_row(sizes: list[int], share: float, seed: int) -> None:
    sets = np.repeat(np.arange(len(sizes)), sizes)
    priors = random_priors(np.random.default_rng(seed), len(sizes), 2)
    made = UnlabeledSets.from_arrays("a", torch.zeros(len(sets), 1), sets, priors, held_out=share, seed=seed)
    held = np.bincount(made.held_out.sets.numpy(), minlength=len(sizes))
    assert_array_equal(held, [min(round(share * size), size - 1) for size in sizes])


@repeatable
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40).map(lambda rest: [0, 1, 2, 3, *rest]), seeds)
def test_every_row_is_either_trained_on_or_held_out_and_keeps_its_set(sets: list[int], seed: int) -> None:
    made = UnlabeledSets.from_arrays("a", torch.zeros(len(sets), 1), sets, np.eye(4), seed=seed)
    index = torch.cat([made.train.index, made.held_out.index])
    assert_array_equal(index.sort().values, np.arange(len(sets)))
    assert_array_equal(torch.cat([made.train.sets, made.held_out.sets]), np.array(sets)[index])


def test_what_is_held_out_follows_from_the_seed_and_the_name() -> None:
    def held(name: str, seed: int) -> list[int]:
        return make_client(name, rows=100, held_out=0.2, seed=seed).held_out.index.tolist()

    assert held("north", 0) == held("north", 0)
    assert len({tuple(held(name, seed)) for name in ("north", "south") for seed in (0, 1)}) == 4


def test_numpy_arrays_and_lists_serve_as_well_as_tensors() -> None:
    x = np.arange(24.0).reshape(12, 2)
    made = [make_client(inputs=kind) for kind in (x, x.tolist(), torch.from_numpy(x))]
    assert all(torch.equal(one.inputs, made[0].inputs) for one in made)


def test_set_priors_and_class_mix_are_those_of_the_training_rows() -> None:
    north = make_client(rows=[5, 2, 1])
    assert_allclose(north.set_priors, [5 / 8, 2 / 8, 1 / 8])
    assert_allclose(north.class_mix, np.array([5, 2, 1]) / 8 @ np.array(PRIORS))


def test_scaling_turns_bytes_into_floats_and_keeps_double_precision() -> None:
    pixels = torch.tensor([[0, 16]], dtype=torch.uint8)
    assert torch.equal(Scaling(1 / 16, -0.5)(pixels), torch.tensor([[-0.5, 0.5]]))
    assert Scaling(2.0)(pixels.double()).dtype == torch.float64


def pair(**changes: Any) -> Federation:
    values: dict[str, Any] = {"test_prior": np.array([0.2, 0.3, 0.5]), "scaling": Scaling(2.0)}
    return Federation([make_client("north", held_out=0.25), make_client("south")], CLASSES, **{**values, **changes})


def test_the_fingerprint_does_not_depend_on_the_order_of_clients_or_on_where_inputs_are_in_memory() -> None:
    one = pair()
    turned = replace(one, clients=one.clients[::-1])
    copied = replace(one, clients=[replace(c, inputs=c.inputs.T.contiguous().T) for c in one.clients])
    assert one.fingerprint() == turned.fingerprint() == copied.fingerprint()


def changed(**fields_of_north: Any) -> Callable[[Federation], Federation]:
    return lambda f: replace(f, clients=[replace(f.clients[0], **fields_of_north), f.clients[1]])


NORTH = make_client("north", held_out=0.25)
ONE_PIXEL = NORTH.inputs + torch.nn.functional.one_hot(torch.tensor(3), 24).reshape(12, 2) * 1e-6
CHANGES: dict[str, Callable[[Federation], Federation]] = {
    "a class's name": lambda f: replace(f, classes=("cat", "dog", "fox")),
    "the order of classes": lambda f: replace(f, classes=("dog", "cat", "owl")),
    "the test prior": lambda f: replace(f, test_prior=np.array([0.2, 0.31, 0.49])),
    "the scaling": lambda f: replace(f, scaling=Scaling(2.0, 0.1)),
    "a client less": lambda f: replace(f, clients=f.clients[:1]),
    "a client's name": changed(name="east"),
    "one value of one row": changed(inputs=ONE_PIXEL),
    "the type of the inputs": changed(inputs=NORTH.inputs.float()),
    "a class prior": changed(priors=np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])),
    "the order of rows": changed(train=Rows(NORTH.train.index.flip(0), NORTH.train.sets.flip(0))),
    "the set of a row": changed(train=make_rows([0, 1, 2, 3], [0, 1, 2, 2])),
    "nothing held out": changed(held_out=make_rows([], [])),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_fingerprint_sees_any_change(change: Callable[[Federation], Federation]) -> None:
    assert change(pair()).fingerprint() != pair().fingerprint()


def test_the_fingerprint_tells_training_rows_from_held_out_ones() -> None:
    inputs, priors = torch.zeros(2, 1), np.eye(2)
    split = UnlabeledSets("a", inputs, make_rows([0, 1], [1, 0]), make_rows([0, 1], [1, 0]), priors)
    joined = UnlabeledSets("a", inputs, make_rows([0, 1, 1, 0], [0, 1, 1, 0]), make_rows([], []), priors)
    assert Federation([split], "ab").fingerprint() != Federation([joined], "ab").fingerprint()


def test_the_fingerprint_sees_rows_beyond_a_part_that_another_client_holds() -> None:
    def shared(x: torch.Tensor) -> str:
        return Federation([make_client("a", inputs=x[:12]), make_client("b", rows=8, inputs=x)], CLASSES).fingerprint()

    inputs = torch.zeros(24, 2)
    before = shared(inputs)
    inputs[20] = 1
    assert shared(inputs) != before


def test_priors_that_determine_less_than_a_classifier_are_refused() -> None:
    with pytest.raises(InputError, match=r"determine 1 of 2 directions; .*force=True"):
        check_identifiability(federation_with_priors(PRIORS[:2]))


def test_one_set_a_client_is_refused_however_many_clients_there_are() -> None:
    with pytest.raises(InputError, match="determine 0 of 2 directions"):
        check_identifiability(federation_with_priors(*([row] for row in PRIORS)))


def test_a_federation_whose_clients_all_suffice_has_no_warning() -> None:
    assert check_identifiability(federation_with_priors(PRIORS, PRIORS)) == []


def test_a_client_that_would_not_suffice_alone_is_a_warning_only() -> None:
    (warning,) = check_identifiability(federation_with_priors(PRIORS, PRIORS[:2]))
    assert warning.startswith("alone, client-2 could not determine the classifier")


def test_many_clients_that_would_not_suffice_alone_are_one_warning() -> None:
    (warning,) = check_identifiability(federation_with_priors(PRIORS, *[PRIORS[:2]] * 5))
    assert warning.startswith("alone, client-2, client-3, client-4 and 2 more could not")


def test_two_thousand_clients_are_a_federation_and_the_one_that_is_wrong_is_named() -> None:
    shared = torch.rand(12, 2)
    many = [make_client(f"client-{c}", inputs=shared) for c in range(2_000)]
    assert check_identifiability(Federation(many, CLASSES)) == []
    with pytest.raises(InputError, match="two clients are called 'client-700'"):
        Federation([*many, many[700]], CLASSES)
    with pytest.raises(InputError, match=r"client 'client-700': rows of shape \(3,\)"):
        Federation([*many[:700], make_client("client-700", inputs=torch.zeros(12, 3)), *many[701:]], CLASSES)


def test_two_clients_with_two_sets_each_suffice_together() -> None:
    (warning,) = check_identifiability(federation_with_priors(PRIORS[:2], PRIORS[1:]))
    assert "client-1, client-2" in warning


def test_sets_have_names_or_are_counted() -> None:
    x, priors = torch.zeros(4, 2), np.eye(2)
    assert UnlabeledSets.from_arrays("a", x, [0, 0, 1, 1], priors).set_names == ("1", "2")
    assert UnlabeledSets.from_arrays("a", x, [0, 0, 1, 1], priors, set_names=["May", "June"]).set_names[1] == "June"
    for names in (["May"], ["May", "May"], "ab"):
        with pytest.raises(InputError, match="client 'a': 2 sets need 2 different names"):
            UnlabeledSets.from_arrays("a", x, [0, 0, 1, 1], priors, set_names=names)
