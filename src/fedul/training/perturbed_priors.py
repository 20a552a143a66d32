"""Perturbed class priors of a run (`--prior-epsilon`): drawn once, stored in its folder, and used by every command.

A second draw for the same data would be a second release, and the mean of many draws is free of noise. So a resumed run
and `fedul evaluate` use the stored draw. A run in another folder draws again, and the epsilons of both add up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedul._utils.display import counted
from fedul._utils.files import read_tensors, write_tensors
from fedul.config import TrainConfig
from fedul.core import Federation, Study
from fedul.errors import InputError
from fedul.privacy.prior_noise import PerturbedPriors, count_noise, perturb_federation
from fedul.privacy.random_source import random_source
from fedul.training.run_files import PERTURBED_PRIORS


def perturb_study(study: Study, config: TrainConfig, folder: Path | None) -> tuple[Study, PerturbedPriors | None]:
    """Return a study with perturbed class priors, and these; the study as it is if it is not to be perturbed.

    Parameters
    ----------
    study : Study
        The data. If its priors are perturbed already, as those of the folds of a run are, they are used.
    config : TrainConfig
        The configuration.
    folder : Path or None
        The run folder. Priors that are stored in it are used again.

    Raises
    ------
    InputError
        If the folder has priors that were perturbed with another epsilon.
    """
    epsilon = config.prior_epsilon
    if _is_perturbed(study.federation):
        return study, None
    perturbed = None if folder is None else read_perturbed(folder)
    if perturbed is not None and perturbed.epsilon != epsilon:
        here = "not given" if epsilon is None else f"{epsilon:g}"
        raise InputError(
            f"{folder}: holds a different run (prior-epsilon is {perturbed.epsilon:g} there, {here} here); choose "
            "another --out."
        )
    if epsilon is None:
        return study, None
    if perturbed is None:
        source = random_source(config.seed if config.dp_seeded else None, "class priors")
        perturbed = perturb_federation(study.federation, epsilon, source)
    return replace(study, federation=perturbed.apply(study.federation)), perturbed


def prior_noise_warnings(federation: Federation, epsilon: float | None) -> list[str]:
    """Return what a user should know about the noise of the class priors; empty if there is none."""
    if epsilon is None:
        return []
    noise, rows = count_noise(epsilon, len(federation.classes)), float(np.median(federation.columns.set_rows))
    size = f"in half of the sets {counted(int(rows), 'row')} or fewer are trained on"
    return [
        f"class priors are perturbed: every count of a class has noise with a standard deviation of {noise:.2g} rows, "
        f"and {size}. Every run in a new folder draws new noise, and their epsilons add up."
    ]


def stored_study(study: Study, folder: Path | None) -> Study:
    """Return the data of a run with the perturbed class priors of its folder, if it has any."""
    perturbed = None if folder is None else read_perturbed(folder)
    if perturbed is None or _is_perturbed(study.federation):
        return study
    return replace(study, federation=perturbed.apply(study.federation))


def read_perturbed(folder: Path) -> PerturbedPriors | None:
    """Return the perturbed class priors of a run folder; None if it has none."""
    file = folder / PERTURBED_PRIORS
    if not file.exists():
        return None
    tensors, notes = read_tensors(file)
    try:
        return PerturbedPriors(tensors["priors"].numpy(), float(notes["epsilon"]))
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{file}: damaged; restore a copy of it, or train in another folder.") from None


def write_perturbed(folder: Path, perturbed: PerturbedPriors) -> None:
    """Write perturbed class priors into a run folder."""
    tensors = {"priors": torch.from_numpy(np.ascontiguousarray(perturbed.priors))}
    write_tensors(folder / PERTURBED_PRIORS, tensors, {"epsilon": perturbed.epsilon})


def _is_perturbed(federation: Federation) -> bool:
    return federation.clients[0].prior_scope.noise > 0
