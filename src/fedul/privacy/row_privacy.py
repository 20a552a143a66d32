"""Differential privacy of the rows of one client: the parameters of its DP-SGD in a run.

Abadi et al., Deep Learning with Differential Privacy, CCS 2016. Every step takes each row with the same probability
(Poisson sampling), clips the gradient of each row, and adds Gaussian noise to their sum. The number of steps is fixed,
the size of a batch is random.
"""

from __future__ import annotations

from dataclasses import dataclass


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
