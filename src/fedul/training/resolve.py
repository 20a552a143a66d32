"""Settings of a run that the user does not give: those of its start, if it is resumed, or those that are chosen now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fedul.classifier import Classifier
from fedul.core import Federation, RoundMetrics, Study
from fedul.training.callbacks import Callback, RunInfo
from fedul.training.choice import Choice, choose_settings, resolve_recipe
from fedul.training.recipe import Recipe
from fedul.training.result import Run, RunResult
from fedul.training.run_folder import RunFolder


def resolve_run(
    study: Study,
    recipe: Recipe,
    folder: RunFolder | None,
    callback: Callback,
    train_parts: Callable[..., Iterator[Run]],
) -> tuple[Recipe, Choice | None]:
    """Return the recipe with a value for every setting, and what was chosen without labels.

    Parameters
    ----------
    study : Study
        The data.
    recipe : Recipe
        The settings that the user gives.
    folder : RunFolder or None
        The run folder. A run in it keeps the settings of its start.
    callback : Callback
        Called for the runs that are trained for the choice, without their warnings.
    train_parts : callable
        Trains runs on parts of the data, as `fedul.training.train.train_parts` does.
    """
    stored = None if folder is None else folder.stored_config()
    if folder is not None and stored is not None:
        return recipe.as_stored(stored.training), folder.choice()
    method = recipe.make_method(study.truth)

    def train_alternative(parts: Sequence[Federation], alternative: Recipe, title: str) -> Iterator[Classifier]:
        if alternative.config.select == "held-out-error":  # parts have no labels
            alternative = replace(alternative, config=replace(alternative.config, select="held-out-loss"))
        titles = [f"{title}, part {part} of {len(parts)}" for part in range(1, len(parts) + 1)]
        infos = [RunInfo(0, each, role="choice") for each in titles]
        return (run.classifier for run in train_parts(parts, alternative, infos, _ProgressOnly(callback)))

    choice = choose_settings(study.federation, recipe, method, train_alternative)
    return resolve_recipe(recipe, method, study.federation, choice), choice


class _ProgressOnly(Callback):
    """Passes on the progress of a run, without its warnings."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def on_run_start(self, run: RunInfo) -> None:
        self._callback.on_run_start(run)

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        self._callback.on_round_end(run, metrics)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        self._callback.on_run_end(run, result)
