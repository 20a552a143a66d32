"""What can be said of a federation before training: plain figures, for people, for JSON and for advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["enough", "costly", "not enough"]

LABELS_A_CLASS = 5
"""With fewer labels a class than this, even labelled data would not do."""

COSTLY = 0.1
"""A row that may be worth less than this share of a label is worth little."""

SAME_MIX = 0.01
"""Priors that are closer than this in total variation are as good as equal."""


@dataclass(frozen=True)
class ClientOutlook:
    """One client: how well its priors tell the classes apart, and what its rows are worth."""

    client: str
    rows: int
    sets: int
    rank: int
    condition: float | None  # None: it could not do alone
    information: float  # I(class; set) / H(class)
    efficiency: float  # labels that a row is worth between two classes


@dataclass(frozen=True)
class Together:
    """All clients: `rank` of the `classes` - 1 independent ways in which class mixes must differ."""

    clients: int
    rows: int
    sets: int
    rank: int
    classes: int


@dataclass(frozen=True)
class PairOutlook:
    """Two classes: the labels a row is worth between them, and how much the sets of a client differ in them.

    `contrast` is the standard deviation, within clients, of the share of the first class among the two.
    """

    first: str
    second: str
    low: float
    high: float
    contrast: float


@dataclass(frozen=True)
class Forecast:
    """The rows are worth about so many labels; `rows` counts a row that is in several sets once."""

    rows: int
    labels_worth_low: int
    labels_worth_high: int
    share_low: float
    share_high: float


@dataclass(frozen=True)
class NearDuplicates:
    """Two sets of a client with the same class mix, or one that chance alone would move as far.

    `distance` is the total variation between their priors, `chance` the one to expect between the class shares of two
    draws of so many rows from one population.
    """

    client: str
    first: str
    second: str
    distance: float
    chance: float


@dataclass(frozen=True)
class WeakClass:
    """A class with little support. `why`: rare in every set, alike in all sets of every client, or few rows."""

    name: str
    why: Literal["rare", "alike", "few rows"]
    value: float  # its highest share, its largest difference between sets of a client, or its rows


@dataclass(frozen=True)
class SmallSet:
    """A set with hardly any rows."""

    client: str
    name: str
    rows: int


@dataclass(frozen=True)
class SplitIdea:
    """A set (or every set, if no single one matters) split so that its halves differ in the worst pair of classes.

    `low` and `high` are the labels that a row is worth between these classes then.
    """

    client: str | None  # None: every set
    name: str | None
    rows: int
    shift: float
    low: float
    high: float


@dataclass(frozen=True)
class Outlook:
    """Whether a federation is enough to train on, why, and what would help."""

    identifiable: bool
    together: Together
    forecast: Forecast
    clients: Sequence[ClientOutlook]
    pairs: Sequence[PairOutlook]  # those told apart worst, worst first
    near_duplicates: Sequence[NearDuplicates]
    weak_classes: Sequence[WeakClass]
    small_sets: Sequence[SmallSet]
    split: SplitIdea | None  # None: no set has both classes of the worst pair, or there is nothing to gain
    summary: str = ""  # the verdict in a sentence
    advice: Sequence[str] = ()  # sentences, the most useful first

    @property
    def verdict(self) -> Verdict:
        forecast, classes = self.forecast, self.together.classes
        if not self.identifiable or forecast.labels_worth_high < LABELS_A_CLASS * classes:
            return "not enough"
        few = forecast.labels_worth_low < LABELS_A_CLASS * classes
        return "costly" if few or forecast.share_low < COSTLY else "enough"

    def plain(self) -> dict[str, Any]:
        """Everything as what JSON can hold."""
        return {"verdict": self.verdict, **asdict(self)}


def share_range(low: float, high: float) -> str:
    """Two shares in per cent, as one where they look alike; small ones with two digits.

    >>> share_range(0.0123, 0.5), share_range(0.3, 0.3)
    ('1.2 to 50 %', '30 %')
    """
    ends = [f"{100 * end:.0f}" if end >= 0.1 or end < 1e-5 else f"{100 * end:.2g}" for end in (low, high)]
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"
