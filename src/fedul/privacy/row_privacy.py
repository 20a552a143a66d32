"""Differential privacy of the rows of one client: the parameters of its DP-SGD in a run, and the noise for a target.

Abadi et al., Deep Learning with Differential Privacy, CCS 2016. Every step takes each row with the same probability
(Poisson sampling), clips the gradient of each row, and adds Gaussian noise to their sum. The number of steps is fixed,
the size of a batch is random.

Numbers of rows are public, so two data sets of a client are neighbours if one row of one of them is replaced with a row
that contributes nothing. The guarantee is that of adding or removing a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fedul.config import TrainConfig
from fedul.errors import InputError
from fedul.privacy.accounting import Gaussian, noise_for


@dataclass(frozen=True)
class RowPrivacy:
    """How one client adds noise to its gradients.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise, as a multiple of `clip`.
    clip : float
        Largest norm of the gradient of a row.
    rate : float
        Probability that a row is in a step.
    steps : int
        Steps of a round.
    seeded : bool, default=False
        Whether noise and batches follow from the seed of the run, which gives no guarantee.
    """

    noise: float
    clip: float
    rate: float
    steps: int
    seeded: bool = False

    @property
    def mechanism(self) -> Gaussian:
        """What a row pays for one round."""
        return Gaussian(self.noise, self.rate, self.steps)


def plan_row_privacy(config: TrainConfig, rows: int, rounds: int, client: str = "") -> RowPrivacy:
    """Return how a client trains with differential privacy of its rows.

    A client of n rows takes ``k = ceil(n / batch size)`` steps in an epoch, and each row is in a step with probability
    1 / k. So clients of similar size share k, and with it the noise.

    Parameters
    ----------
    config : TrainConfig
        The configuration, with `dp_epsilon` or `dp_noise`.
    rows : int
        Rows that the client trains on; a public number.
    rounds : int
        Rounds that the budget has to suffice for.
    client : str, optional
        Name of the client, for messages.

    Returns
    -------
    RowPrivacy
        With the smallest noise that keeps within `dp_epsilon`.

    Raises
    ------
    InputError
        If `dp_delta` is not below 1 / rows.

    Examples
    --------
    >>> plan = plan_row_privacy(TrainConfig(dp_epsilon=8, batch_size=32), rows=480, rounds=60)
    >>> plan.steps, round(1 / plan.rate), round(plan.noise, 2)
    (15, 15, 1.41)
    """
    check_delta(config.dp_delta, rows, client)
    each_epoch = steps_of_epoch(rows, config.batch_size)
    rate, steps = 1 / each_epoch, each_epoch * config.epochs
    noise = config.dp_noise
    if noise is None:
        if config.dp_epsilon is None:
            raise ValueError("neither dp_epsilon nor dp_noise is given.")
        noise = _noise(config.dp_epsilon, config.dp_delta, rate, steps * rounds)
    return RowPrivacy(noise, config.dp_clip, rate, steps, config.dp_seeded)


def steps_of_epoch(rows: int, batch_size: int) -> int:
    """Return the steps of a private epoch, whose batches have at most `batch_size` rows on average; 0 means all rows.

    >>> steps_of_epoch(100, 32), steps_of_epoch(100, 0)
    (4, 1)
    """
    return -(-rows // batch_size) if batch_size else 1


def check_delta(delta: float, rows: int, client: str = "") -> None:
    """Raise InputError unless delta is below 1 / rows: a delta of 1 / rows allows to publish one row at random."""
    if delta * rows >= 1:
        of = f"client '{client}' has" if client else "a client has"
        raise InputError(
            f"dp-delta: {delta:g} is not below 1 / rows, and {of} {rows:,} rows; use at most {0.1 / rows:.0e}."
        )


@lru_cache(maxsize=4096)
def _noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    return noise_for(epsilon, delta, lambda noise: [Gaussian(noise, rate, steps)])
