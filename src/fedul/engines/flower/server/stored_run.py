"""The document `run_spec.json`: what the sites of a run agreed on, and what the run declared to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedul._utils.documents import read_document, to_document
from fedul._utils.files import read_json, write_json
from fedul.config import TrainConfig
from fedul.core import Matrix, RoundMetrics
from fedul.engines.flower.protocol.run_plan import RunPlan
from fedul.engines.flower.protocol.run_spec import RunSpec
from fedul.engines.flower.settings import CoordinatorConfig
from fedul.errors import InputError
from fedul.training import RunFolder
from fedul.training.run_files import METRICS, RUN_SPEC


@dataclass(frozen=True, eq=False)
class StoredRun:
    """What a coordinator must know to resume a run.

    Parameters
    ----------
    run : str
        Identifier of the run.
    spec : RunSpec
        What all sites share.
    plan : RunPlan
        What the run asks of its sites.
    resumption : int
        How often it has been resumed.
    counts : mapping of str to int
        Totals over the sites that started a run with secure aggregation, which are asked for once; else empty.
    """

    run: str
    spec: RunSpec
    plan: RunPlan
    resumption: int
    counts: Mapping[str, int] = field(default_factory=dict)

    def write(self, folder: RunFolder) -> None:
        """Write the document into the run folder."""
        write_json(folder.path / RUN_SPEC, to_document(self))


def read_stored_run(
    folder: RunFolder, config: CoordinatorConfig, test_prior: Matrix | None, class_mix: Matrix | None
) -> StoredRun | None:
    """Return what the sites agreed on when the run in this folder started; None for a new run.

    Raises
    ------
    InputError
        If the folder holds another run, or one that is not to be resumed.
    """
    file, exists = folder.path / RUN_SPEC, folder.stored_config() is not None
    if exists and not config.resume:
        raise InputError(f"{folder.path}: holds a run already; continue it (resume=true), or choose another out.")
    if exists and not file.exists():
        raise InputError(f"{file}: is missing, and sites know the run by it; restore a copy, or choose another out.")
    if not file.exists():
        return None
    try:
        stored = read_document(StoredRun, read_json(file))
    except ValueError:
        raise InputError(f"{file}: damaged; restore a copy, or start a new run in another out.") from None
    other_prior = test_prior is not None and not (stored.spec.test_prior == test_prior).all()
    if tuple(stored.spec.classes) != config.classes or other_prior:
        raise InputError(f"{folder.path}: holds a run with other classes or another test prior; choose another out.")
    mix = stored.spec.class_mix
    if (mix is None) != (class_mix is None) or (mix is not None and not np.array_equal(mix, np.asarray(class_mix))):
        raise InputError(f"{folder.path}: holds a run with another class-mix; choose another out.")
    if stored.spec.site_adjustment != config.site_adjustment:
        raise InputError(f"{folder.path}: holds a run with another site-adjustment; choose another out.")
    return stored


def declare_plan(config: CoordinatorConfig, training: TrainConfig, stored: StoredRun | None, rows: int = 0) -> RunPlan:
    """Return the plan of a new run, or that of the run that is resumed, which its sites hold it to.

    Parameters
    ----------
    config, training
        The settings.
    stored : StoredRun or None
        The run that is resumed.
    rows : int
        Training rows of all sites, if they are known from a secure sum.
    """
    if stored is None:
        return RunPlan(
            max(config.max_rounds, training.rounds),
            evaluations=int(not training.is_private),
            references=not training.is_private,
            local_evaluations=int(not training.is_private),
            resumptions=config.resumptions,
            min_sites=config.min_sites,
            most_rows=LATER_ROWS * rows,
        )
    if training.rounds > stored.plan.rounds:
        raise InputError(
            f"rounds: {training.rounds} are more than the {stored.plan.rounds} that the run declared to its sites; "
            "give fewer, or start a new run (with max-rounds, if it is to be continued later)."
        )
    if stored.resumption >= stored.plan.resumptions:
        raise InputError(
            f"resume: the run declared that it is resumed {stored.plan.resumptions} times; start a new one."
        )
    return stored.plan


LATER_ROWS = 4
"""Rows for which the sums of a run have room, relative to those of the first sites: others may join later."""


def stored_evaluators(folder: RunFolder) -> tuple[str, ...]:
    """Return the sites that evaluated the rounds of a run so far; empty for a new one."""
    return next((line.evaluated_by for line in reversed(_history(folder)) if line.evaluated_by), ())


def stored_epsilon(folder: RunFolder) -> dict[str, float]:
    """Return what the rows of sites had paid after the last round of a run so far; empty for a new one."""
    lines = _history(folder)[-1:]
    return {name: math.inf if paid is None else paid for line in lines for name, paid in line.epsilon_by_client.items()}


def _history(folder: RunFolder) -> list[RoundMetrics]:
    return folder.history() if (folder.path / METRICS).exists() else []
