"""Why an aggregation does not go on."""

from __future__ import annotations

from fedul.errors import EnvironmentFailure, FedulError


class Refusal(FedulError):
    """A site, or the coordinator, refuses a message that no honest run sends. Nothing was revealed."""


class TooFewSites(EnvironmentFailure):
    """Fewer sites than the threshold went on, so nothing can be revealed; the round can be repeated with fresh keys.

    Parameters
    ----------
    phase : str
        What the sites were asked for.
    present, needed : int
        Sites that answered, and the threshold.
    """

    def __init__(self, phase: str, present: int, needed: int) -> None:
        super().__init__(
            f"secure aggregation: {present} of at least {needed} sites sent {phase}; "
            "wait for more sites, or start the run with a lower aggregation-threshold."
        )
        self.phase, self.present, self.needed = phase, present, needed


class NotFinite(FedulError):
    """A value to be summed is not a finite number, so the site sends nothing."""
