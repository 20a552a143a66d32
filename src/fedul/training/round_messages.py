"""What a run tells its user about single rounds."""

from __future__ import annotations

from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.privacy.ledger import BudgetSpent


def nothing_left(spent: BudgetSpent, rounds: int) -> BudgetSpent:
    """Return the error of a run that cannot pay for its next round after this many, with what to do."""
    if not rounds:
        return spent
    return BudgetSpent(
        f"{spent} Allow a larger --{spent.setting}, or deliver the last round with --rounds {rounds}.",
        spent.setting,
    )


def clipped_warning(metrics: RoundMetrics, config: TrainConfig) -> str:
    """Return the warning about a round in which secure aggregation clipped values."""
    return (
        f"in round {metrics.round}, {metrics.clipped_values} values of updates were larger than the range of secure "
        f"aggregation, {config.aggregation_range:g}, and were clipped; a larger --aggregation-range changes less."
    )
