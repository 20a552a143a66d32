"""The configurations that are attacked: those of the run without protection, with private rows, with secure sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedul._utils.hardware import device_or_auto
from fedul.auditing.document import Protection
from fedul.config import TrainConfig
from fedul.core import Federation
from fedul.training import Recipe

UNPROTECTED: Mapping[str, Any] = {
    "dp_epsilon": None,
    "dp_noise": None,
    "dp_seeded": False,
    "client_dp_epsilon": None,
    "client_dp_noise": None,
    "client_dp_quantile": None,
    "prior_epsilon": None,  # the data has perturbed priors already
    "secure_aggregation": False,
}


@dataclass(frozen=True, eq=False)
class Condition:
    """A protection, and how clients train under it.

    Parameters
    ----------
    protection : Protection
        The protection.
    recipe : Recipe
        A value for every setting.
    """

    protection: Protection
    recipe: Recipe

    @property
    def config(self) -> TrainConfig:
        """The configuration."""
        return self.recipe.config


def make_conditions(recipe: Recipe, rounds: int, federation: Federation, epsilon: float) -> tuple[Condition, ...]:
    """Return how the clients of a run train without protection, with private rows, and with secure aggregation.

    Parameters
    ----------
    recipe : Recipe
        How the run was trained.
    rounds : int
        Rounds to train.
    federation : Federation
        The clients.
    epsilon : float
        Epsilon of private rows if the run has none.
    """
    run = recipe.config
    base = replace(
        run,
        rounds=rounds,
        patience=0,
        select="last",
        evaluate_every=0,
        device=device_or_auto(run.device),
        **UNPROTECTED,
    )
    if run.protects_rows:
        private = {name: getattr(run, name) for name in ("dp_epsilon", "dp_noise", "dp_seeded")}
        given = f"epsilon {run.dp_epsilon:g}" if run.dp_epsilon is not None else f"noise {run.dp_noise:g}"
        described = f"differential privacy of rows, {given}, as the run"
    else:
        rows = int(max(federation.columns.train_rows + federation.columns.held_out_rows))
        private = {"dp_epsilon": epsilon, "dp_delta": min(run.dp_delta, 0.1 / rows)}
        described = f"differential privacy of rows, epsilon {epsilon:g}, which the run does not have"
    open_ = not (run.is_private or run.secure_aggregation)
    secure = "secure aggregation" + ("" if run.secure_aggregation else ", which the run does not have")
    return (
        Condition(Protection("none", "no protection", open_), replace(recipe, config=base)),
        Condition(Protection("dp", described, run.protects_rows), replace(recipe, config=replace(base, **private))),
        Condition(
            Protection("secure-aggregation", secure, run.secure_aggregation),
            replace(recipe, config=replace(base, secure_aggregation=True)),
        ),
    )
