"""Choice of settings without labels, on sets that are never trained on.

Each alternative of the method (`Method.alternatives`) is trained without some sets and scored on these
(`fedul.training.left_out`). The first alternative is chosen unless another one is better by more than a standard error
over sets. If none is clearly better than a classifier that says nothing, the sets left out cannot tell, and the
alternative that is meant for this (`Alternative.fallback`) is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedul._utils.display import counted
from fedul._utils.documents import Document
from fedul._utils.settings import to_dict
from fedul.algorithms.fedadam import FedAdam
from fedul.classifier import Classifier
from fedul.core import Federation, Matrix
from fedul.errors import InputError
from fedul.methods.base import Alternative, Method
from fedul.training.early_stopping import resolve_rounds
from fedul.training.left_out import FOLDS, assign_folds, score_left_out, without_sets
from fedul.training.recipe import Recipe, is_given

FEWEST = 12
"""With fewer sets to leave out there is no choice: the first alternative is taken."""
LONGEST_STEP = 0.2
"""Longest step of the coordinator, where the user gives few rounds."""
CLEARLY = 2.0
"""Standard errors by which an alternative must be better than no classifier, for the sets left out to tell."""


@dataclass(frozen=True)
class AlternativeScore(Document):
    """Score of an alternative on sets that it was not trained on.

    Parameters
    ----------
    name : str
        Name of the alternative.
    loss : float
        Mean loss of their rows (`fedul.training.left_out`); 0 for a classifier that says nothing.
    excess, standard_error : float
        Difference from the alternative with the lowest loss, and its standard error over sets.
    """

    name: str
    loss: float
    excess: float
    standard_error: float


@dataclass(frozen=True)
class Choice(Document):
    """Settings that were chosen, and why.

    Parameters
    ----------
    chosen : str
        Name of the alternative.
    reason : str
        Why, in one sentence.
    sets : int
        Sets that were left out, each once; 0 if nothing was compared.
    alternatives : tuple of AlternativeScore
        Scores of all alternatives; empty if nothing was compared.
    """

    chosen: str
    reason: str
    sets: int = 0
    alternatives: tuple[AlternativeScore, ...] = ()


TrainFolds = Callable[[Sequence[Federation], Recipe, str], Iterable[Classifier]]
"""Trains a classifier on each of these parts of the federation; the text says what for."""


def choose_settings(federation: Federation, recipe: Recipe, method: Method, train: TrainFolds) -> Choice | None:
    """Return the choice among the alternatives of the method; None if it has none.

    Parameters
    ----------
    federation : Federation
        The clients.
    recipe : Recipe
        The settings that the user gives.
    method : Method
        The method, whose alternatives are compared.
    train : callable
        Trains an alternative on parts of the federation.
    """
    alternatives = list_alternatives(recipe, method, federation.input_shape, count_sets(federation))
    if not alternatives:
        return None
    first = alternatives[0].name
    if recipe.config.is_private:
        return Choice(first, "nothing was compared, since a comparison would spend a part of the privacy budget")
    if recipe.config.choose == "off":
        return Choice(first, "nothing was compared, since choose is off")
    if len(alternatives) == 1:
        return Choice(first, "nothing was compared, since the method or its options leave no alternative")
    folds = assign_folds(federation.clients, recipe.config.seed)
    left_out = sum(int((of_client >= 0).sum()) for of_client in folds)
    if left_out < FEWEST:
        return Choice(first, f"only {counted(left_out, 'set')} could be left out, so nothing was compared")
    try:
        parts = [without_sets(federation, [of_client == fold for of_client in folds]) for fold in range(FOLDS)]
    except InputError:  # the other sets do not have all classes
        return Choice(first, "without the sets left out a class would be missing, so nothing was compared")
    rows, losses = np.zeros(0), []
    for number, alternative in enumerate(alternatives, 1):
        chosen = _complete(apply_alternative(recipe, alternative))
        scores = [
            score_left_out(federation, [of_client == fold for of_client in folds], classifier)
            for fold, classifier in enumerate(train(parts, chosen, f"choice {number} of {len(alternatives)}"))
        ]
        rows, of_sets = (np.concatenate(values) for values in zip(*scores, strict=True))
        losses.append(of_sets)
    return _decide(alternatives, rows, np.stack(losses))


def list_alternatives(recipe: Recipe, method: Method, shape: tuple[int, ...], sets: int | None) -> list[Alternative]:
    """Return the alternatives that are left when the user's settings are applied, each once.

    Parameters
    ----------
    recipe : Recipe
        The settings that the user gives.
    method : Method
        The method.
    shape : tuple of int
        Shape of one row.
    sets : int or None
        Number of sets of all clients; None where it is not known.
    """
    every = method.alternatives(shape, sets)
    if recipe.method is not None or recipe.config.method_option:
        # The user's settings of the method stand; only settings of training are taken from the first alternative.
        return [replace(alternative, options={}) for alternative in every[:1]]
    different = {repr(_settings(recipe, alternative)): alternative for alternative in reversed(every)}
    return list(different.values())[::-1]


def resolve_recipe(recipe: Recipe, method: Method, federation: Federation, choice: Choice | None) -> Recipe:
    """Return the recipe with a value for every setting: the user's, that of the choice, or the general default.

    Without a choice the first alternative of the method is taken.
    """
    return resolve_settings(recipe, method, federation.input_shape, count_sets(federation), choice)


def resolve_settings(
    recipe: Recipe, method: Method, shape: tuple[int, ...], sets: int | None, choice: Choice | None = None
) -> Recipe:
    """Resolve as `resolve_recipe` does, where the data is at sites; parameters are those of `list_alternatives`."""
    alternatives = list_alternatives(recipe, method, shape, sets)
    for alternative in alternatives[:1] if choice is None else [c for c in alternatives if c.name == choice.chosen]:
        recipe = apply_alternative(recipe, alternative)
    return _complete(recipe)


def _complete(recipe: Recipe) -> Recipe:
    """Return the recipe with the general default for every setting that is still open."""
    return replace(recipe, config=resolve_rounds(recipe.config.resolved()))


def count_sets(federation: Federation) -> int:
    """Return the number of sets of all clients."""
    return len(federation.columns.stacked_priors)


def apply_alternative(recipe: Recipe, alternative: Alternative) -> Recipe:
    """Return the recipe with the settings of an alternative, where the user gives none."""
    options, training = _settings(recipe, alternative)
    config = replace(recipe.config, choose="off", **training)
    if recipe.method is None:
        config = replace(config, method_option={**config.method_option, **options})
    return replace(recipe, config=config)


def _settings(recipe: Recipe, alternative: Alternative) -> tuple[dict[str, Any], dict[str, Any]]:
    given, passed = to_dict(recipe.config), {"model": recipe.model, "algorithm": recipe.algorithm}
    open_ = {name for name in alternative.training if not is_given(name, given[name]) and passed.get(name) is None}
    if recipe.config.is_private:
        open_ -= {"select", "patience"}
    training = {name: value for name, value in alternative.training.items() if name in open_}
    wanted = alternative.training.get("rounds", 0)
    if training.get("algorithm") == "fedadam" and 0 < recipe.config.rounds < wanted and not given["algorithm_option"]:
        # Adam at the coordinator moves by about its step in each round: fewer rounds need longer steps.
        step = min(FedAdam().step * wanted / recipe.config.rounds, LONGEST_STEP)
        training["algorithm_option"] = {"step": step}
    return dict(alternative.options), training


def _decide(alternatives: Sequence[Alternative], rows: Matrix, losses: Matrix) -> Choice:
    """Choose from the losses (alternatives, sets): see the top of this file."""
    weight = rows / rows.sum()
    means = losses @ weight
    best = int(means.argmin())
    errors = _standard_errors(losses - losses[best], weight)  # paired: the same sets
    scores = tuple(
        AlternativeScore(alternative.name, float(means[i]), float(means[i] - means[best]), float(errors[i]))
        for i, alternative in enumerate(alternatives)
    )
    sets = len(rows)
    fallback = [alternative.name for alternative in alternatives if alternative.fallback]
    if fallback and (-means <= CLEARLY * _standard_errors(losses, weight)).all():
        reason = f"on {sets} sets left out of training no alternative is clearly better than no classifier"
        return Choice(fallback[0], reason, sets, scores)
    if means[0] - means[best] > errors[0]:
        reason = f"it predicts {sets} sets best that were left out of training"
        return Choice(alternatives[best].name, reason, sets, scores)
    best_too = "it predicts" if best == 0 else "within a standard error it predicts"
    return Choice(alternatives[0].name, f"{best_too} {sets} sets best that were left out of training", sets, scores)


def _standard_errors(values: Matrix, weight: Matrix) -> Matrix:
    """Return the standard error of each weighted mean over sets of values (alternatives, sets)."""
    spread = np.sqrt((weight**2 * (values - (values @ weight)[:, None]) ** 2).sum(axis=1))
    return np.asarray(spread * math.sqrt(len(weight) / (len(weight) - 1)))
