"""What engines sum under secure aggregation besides updates: held-out sums, as fields with declared ranges.

The loss of a row is clipped to `ROW_LOSS`, at each client for the sum over its rows. Rounds are compared as sums over
the clients that evaluate them, against one reference round that all of them evaluate on the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedul._utils.display import counted
from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.engines.held_out import TEMPERATURES, HeldOutSums
from fedul.errors import InputError
from fedul.privacy.secure_aggregation.layout import Field, Values

FEWEST_CLIENTS = 3
"""Of two clients, each could subtract its own part from the sum."""
ROW_LOSS = 64.0
"""Largest mean of the loss -log Q over the rows of a client; larger ones are clipped. Infinite ones are, too."""
MOST_ROWS = 2.0**26
"""Held-out rows of all clients for which the sums are exact enough."""

HELD_OUT_FIELDS = (
    Field("held-out losses", len(TEMPERATURES), MOST_ROWS * ROW_LOSS, MOST_ROWS * ROW_LOSS),
    Field("held-out squares", len(TEMPERATURES), MOST_ROWS * ROW_LOSS**2, MOST_ROWS * ROW_LOSS**2),
    Field("held-out reference", 1, MOST_ROWS * ROW_LOSS, MOST_ROWS * ROW_LOSS),
    Field("held-out rows", 1, MOST_ROWS, MOST_ROWS),
)
"""Fields of `HeldOutSums`, for `UpdateLayout.extra` or a layout of their own."""


def check_enough_sites(sites: int) -> None:
    """Refuse to start a federation with secure aggregation and too few sites."""
    if sites < FEWEST_CLIENTS:
        raise InputError(f"sites: a sum hides no single site of fewer than {FEWEST_CLIENTS}; give more (--sites).")


def check_secure_aggregation(algorithm: Algorithm, config: TrainConfig, clients: int) -> None:
    """Refuse what secure aggregation cannot do.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    config : TrainConfig
        The configuration; nothing is checked unless it asks for secure aggregation.
    clients : int
        Clients of a round.

    Raises
    ------
    InputError
        If the algorithm needs single updates, or there are too few clients.
    """
    if not config.secure_aggregation:
        return
    if reason := algorithm.single_updates_reason:
        raise InputError(
            f"secure-aggregation: the coordinator sees sums only, and algorithm {config.algorithm_name} needs every "
            f"single update: {reason}; use another algorithm, for example fedavg."
        )
    if clients < FEWEST_CLIENTS:
        raise InputError(
            f"secure-aggregation: a sum over {counted(clients, 'client')} hides no single one; at least "
            f"{FEWEST_CLIENTS} must take part in a round."
        )
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InputError("secure-aggregation: needs the extra privacy; run pip install 'fedul[privacy]'.") from None


def held_out_values(sums: HeldOutSums) -> dict[str, Values]:
    """Return the sums of one client by field, clipped to the declared range."""
    losses, squares, reference = (
        np.nan_to_num(np.clip(values, 0.0, sums.rows * bound), nan=sums.rows * bound)
        for values, bound in (
            (np.array(sums.losses), ROW_LOSS),
            (np.array(sums.squared_differences), ROW_LOSS**2),
            (np.array([sums.reference_loss]), ROW_LOSS),
        )
    )
    rows = np.array([float(sums.rows)])
    names = [field.name for field in HELD_OUT_FIELDS]
    return dict(zip(names, (losses, squares, reference, rows), strict=True))


def held_out_sums(values: Mapping[str, Values]) -> HeldOutSums:
    """Return the sums over clients from their fields."""
    losses, squares, reference, rows = (values[field.name].tolist() for field in HELD_OUT_FIELDS)
    # Rounding may leave a sum of squares slightly below 0.
    return HeldOutSums(tuple(losses), tuple(max(each, 0.0) for each in squares), reference[0], round(rows[0]))
