"""What a run guarantees about rows or clients, in numbers and sentences: nothing is claimed that is not listed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedul._utils.documents import Document
from fedul.config import TrainConfig

NO_GUARANTEE = (
    "Noise and batches follow from the seed, so there is no guarantee: who knows the seed can remove the noise."
)
UNBOUNDED = "There is too little noise for a finite epsilon, so there is no guarantee."
RELEASED = (
    "the updates of all rounds, with what the algorithm adds to them",
    "the weights of all rounds, the classifier, and everything that is computed from them alone",
)
LEFT_OUT = (
    "losses of training rows and of held-out rows",
    "the choice of settings on sets left out, early stopping, and the choice of the round: the last one is delivered",
    "the temperature, which is 1, and the levels of prediction sets",
)
PUBLIC = (
    "class priors and names of sets",
    "numbers of rows, sets and steps",
)
ENCODING = "how columns become inputs: means and deviations of numbers, words of categories, which have missing values"
TRUE_LABELS = "errors with respect to true labels (test_error), if the rows of the test are rows of clients"
DIGEST = "the digest of the rows in config.json (data_fingerprint)"
COMMANDS = "what check, evaluate and report compute from the rows, and the accuracy in a model card"
SITE_STATISTICS = "statistics of columns that sites send when they connect"
LOCAL_NOISE = (
    "Noise is added at each client before anything leaves it, so the guarantee holds against the coordinator too, even "
    "a malicious one."
)
ONE_PROCESS = "All rows are in this process; the guarantee is about what the run publishes."


@dataclass(frozen=True)
class PrivacyStatement(Document):
    """What a run guarantees, and what it does not.

    Parameters
    ----------
    unit : str
        What is protected: "row", "client" or "class of a row".
    epsilon : float or None
        Largest epsilon of a client; None if there is no finite one.
    delta : float
        Delta.
    guarantee : bool
        Whether there is a guarantee; seeded noise gives none.
    meaning : str
        What the numbers mean, in one sentence.
    covers : tuple of str
        What is released under the guarantee.
    left_out : tuple of str
        What other runs release, and this one does not.
    not_covered : tuple of str
        What is released, or may be, without the guarantee.
    trust : str
        Who need not be trusted.
    """

    unit: str
    epsilon: float | None
    delta: float
    guarantee: bool
    meaning: str
    covers: tuple[str, ...]
    left_out: tuple[str, ...]
    not_covered: tuple[str, ...]
    trust: str

    @property
    def headline(self) -> str:
        """The guarantee in a few words.

        >>> statement = row_statement(TrainConfig(dp_epsilon=3), {"north": 2.96}, ())
        >>> statement.headline
        'each row is protected with epsilon 2.96 at delta 1e-05'
        """
        if not self.guarantee:
            return f"no {self.unit} is protected"
        return f"each {self.unit} is protected with epsilon {self.epsilon:.3g} at delta {self.delta:g}"


def row_statement(
    config: TrainConfig, epsilon: Mapping[str, float], not_covered: tuple[str, ...], trust: str = LOCAL_NOISE
) -> PrivacyStatement:
    """Return the statement on the rows of a run.

    Parameters
    ----------
    config : TrainConfig
        The configuration.
    epsilon : mapping of str to float
        By client, what its rows have paid.
    not_covered : tuple of str
        What is released without the guarantee, besides `PUBLIC`.
    trust : str
        Who need not be trusted.
    """
    largest = max(epsilon.values(), default=math.inf)
    meaning = (
        "If one row of a set is replaced with one that contributes nothing, the probability of any result that is "
        "covered changes by a factor of at most exp(epsilon), up to delta."
    )
    if config.dp_seeded:
        meaning = NO_GUARANTEE
    elif not math.isfinite(largest):
        meaning = UNBOUNDED
    return PrivacyStatement(
        unit="row",
        epsilon=finite(largest),
        delta=config.dp_delta,
        guarantee=not config.dp_seeded and math.isfinite(largest),
        meaning=meaning,
        covers=RELEASED,
        left_out=LEFT_OUT,
        not_covered=(*PUBLIC, *not_covered),
        trust=trust,
    )


def finite(epsilon: float) -> float | None:
    """Return epsilon as documents have it: None if it is infinite."""
    return epsilon if math.isfinite(epsilon) else None
