"""Settings are chosen without labels on sets left out; settings of the user stand, also when a run is resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import fedul
from fedul.core import Federation, Study
from fedul.methods.base import Alternative
from fedul.methods.fedul import FedUL
from fedul.methods.fedul_combined import FedULCombined
from fedul.training.choice import (
    Choice,
    _decide,
    apply_alternative,
    choose_settings,
    list_alternatives,
    resolve_recipe,
)
from fedul.training.left_out import FOLDS
from fedul.training.recipe import Recipe

from ..factories import gaussian_study, random_client

TABLE = (2,)
TWO = [Alternative("first"), Alternative("second")]


@dataclass(frozen=True)
class Undecided(FedUL):
    """FedUL whose first alternative does not learn."""

    def alternatives(self, shape: tuple[int, ...], sets: int | None) -> Sequence[Alternative]:
        return [
            Alternative("still", training={"learning_rate": 0.0, "optimizer": "sgd"}),
            Alternative("learning", training={"learning_rate": 0.02, "optimizer": "adam"}),
        ]


def study() -> Study:
    """Three clients with six sets each, whose classes are far apart."""
    return gaussian_study(["north", "south", "west"], rows=40, sets=6)


def test_a_method_object_is_taken_as_it_is() -> None:
    run = fedul.train(study(), method=Undecided(), model="linear", rounds=2, seed=0)
    assert run.result.choice == Choice(
        "still", "nothing was compared, since the method or its options leave no alternative"
    )


def test_the_alternative_that_predicts_the_priors_of_sets_left_out_is_chosen() -> None:
    recipe = Recipe.of(None, {"rounds": 20, "model": "linear", "method": "fedul"})
    trained: list[str] = []

    def train(parts: Sequence[Federation], alternative: Recipe, title: str) -> list[fedul.Classifier]:
        trained.extend([title] * len(parts))
        return [fedul.train(part, alternative.config, method=FedUL()).classifier for part in parts]

    choice = choose_settings(study().federation, recipe, Undecided(), train)
    assert choice is not None
    assert choice.chosen == "learning"
    assert len(trained) == 2 * FOLDS
    assert choice.sets == 18
    assert [score.name for score in choice.alternatives] == ["still", "learning"]
    assert choice.alternatives[0].excess > 2 * choice.alternatives[0].standard_error > 0
    assert choice.alternatives[1].excess == 0


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ([[-0.2, -0.2, -0.2, -0.2], [-0.1, -0.1, -0.1, -0.1]], "first"),
        ([[-0.1, -0.11, -0.09, -0.1], [-0.2, -0.2, -0.2, -0.2]], "second"),
        ([[-0.2, -0.05, -0.2, -0.05], [-0.1, -0.16, -0.1, -0.16]], "first"),  # better on average, within its error
        ([[0.0, 0.0, 0.0, 0.0], [-0.2, 0.15, -0.2, 0.15]], "third"),  # nothing is clearly better than no classifier
        ([[-0.1, 0.1, -0.1, 0.05], [0.0, 0.0, 0.0, 0.0]], "third"),
    ],
)
def test_another_alternative_must_be_better_than_the_first(losses: list[list[float]], chosen: str) -> None:
    third = Alternative("third", fallback=True)
    assert _decide([*TWO, third], np.ones(4), np.array([*losses, [0.5] * 4])).chosen == chosen
    without = _decide(TWO, np.ones(4), np.array(losses)).chosen
    assert without == chosen or chosen == "third"


def test_larger_sets_count_more() -> None:
    losses = np.array([[0.0, 0.0, 0.5, 0.5], [0.4, 0.4, 0.1, 0.1]])
    scores = _decide(TWO, np.array([1.0, 1.0, 98.0, 98.0]), losses).alternatives
    assert scores[0].loss > scores[1].loss


def test_settings_of_the_user_stand() -> None:
    recipe = Recipe.of(None, {"learning_rate": 0.7, "model": "mlp", "rounds": 3})
    every = [apply_alternative(recipe, alternative).config for alternative in FedULCombined().alternatives(TABLE, 20)]
    linear, _, consistent, _ = every
    assert {each.learning_rate for each in every} == {0.7}
    assert {each.model for each in every} == {"mlp"}
    assert linear.algorithm == "fedadam"
    assert consistent.method_option["consistency_weight"] == 0.3
    # With the network given, the first two alternatives are the same.
    names = [alternative.name for alternative in list_alternatives(recipe, FedULCombined(), TABLE, 20)]
    assert names == ["linear", "consistent", "likelihood"]


@pytest.mark.parametrize("name", ["network", "linear", "consistent", "likelihood"])
def test_an_alternative_is_compared_with_the_settings_that_it_is_delivered_with(name: str) -> None:
    recipe, method, federation = Recipe.of(None, {"seed": 3}), FedULCombined(), study().federation
    compared: dict[str, Recipe] = {}

    def train(parts: Sequence[Federation], alternative: Recipe, title: str) -> list[fedul.Classifier]:
        compared.setdefault(title[:8], alternative)
        # What trains a part resolves settings once more, and must not find any that are open.
        method = alternative.make_method(None)
        assert all(resolve_recipe(alternative, method, part, None).config == alternative.config for part in parts)
        return [fedul.train(part, method="fedul", model="linear", rounds=1).classifier for part in parts]

    choose_settings(federation, recipe, method, train)
    delivered = resolve_recipe(recipe, method, federation, Choice(name, ""))
    assert delivered.config in [each.config for each in compared.values()]


def test_a_setting_of_zero_stands() -> None:
    recipe = Recipe.of(None, {"l2": 0, "learning_rate": 0})
    config = resolve_recipe(recipe, FedULCombined(), study().federation, None).config
    assert (config.l2, config.learning_rate) == (0, 0)


def test_options_of_the_method_leave_nothing_to_choose() -> None:
    recipe = Recipe.of(None, {"method_option": {"set_weight": 2.0}})
    (alternative,) = list_alternatives(recipe, recipe.make_method(None), TABLE, 20)
    assert apply_alternative(recipe, alternative).config.method_option == {"set_weight": 2.0}


def test_few_sets_are_not_compared() -> None:
    run = fedul.train(gaussian_study(["north", "south", "west"], rows=8, sets=3), rounds=1)
    assert run.result.choice == Choice("linear", "only 9 sets could be left out, so nothing was compared")


def test_choose_off_takes_the_first_alternative() -> None:
    run = fedul.train(study(), rounds=1, choose="off")
    assert run.result.choice is not None
    assert run.result.choice.chosen == "linear"
    assert run.result.choice.sets == 0


def test_a_resumed_run_keeps_its_choice(tmp_path: Path) -> None:
    run = fedul.train(study(), rounds=2, out=tmp_path / "run")
    assert run.result.choice is not None
    assert run.result.choice.sets == 18
    again = fedul.train(study(), rounds=4, out=tmp_path / "run", resume=True)
    assert again.result.choice == run.result.choice
    assert again.recipe is not None
    assert again.recipe.config.model == run.recipe.config.model  # type: ignore[union-attr]
    whole = fedul.train(study(), rounds=4, out=tmp_path / "whole")
    if whole.result.choice is not None and whole.result.choice.chosen == run.result.choice.chosen:
        assert whole.weights_sha256 == again.weights_sha256


def test_a_client_with_some_of_its_sets_has_their_rows_and_priors() -> None:
    client = random_client("a", 40)
    part = client.with_sets([2, 0])
    assert part.set_names == (client.set_names[2], client.set_names[0])
    np.testing.assert_array_equal(part.priors, client.priors[[2, 0]])
    for rows, whole in ((part.train, client.train), (part.held_out, client.held_out)):
        for new, old in enumerate([2, 0]):
            assert torch.equal(rows.index[rows.sets == new], whole.index[whole.sets == old])


def test_fewer_rounds_than_an_alternative_is_made_for_take_longer_steps() -> None:
    first = FedULCombined().alternatives(TABLE, 20)[0]
    steps = {}
    for rounds in (0, 2, 30, 60, 90):
        config = apply_alternative(Recipe.of(None, {"rounds": rounds}), first).config
        steps[rounds] = config.algorithm_option.get("step")
    assert steps == {0: None, 2: 0.2, 30: 0.04, 60: None, 90: None}
    given = Recipe.of(None, {"rounds": 5, "algorithm": "fedadam", "algorithm_option": {"step": 0.01}})
    assert apply_alternative(given, first).config.algorithm_option == {"step": 0.01}
