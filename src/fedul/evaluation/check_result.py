"""Result of `fedul.check`, also stored as `check.json`: diagnostics of a federation before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedul._utils.display import RichDisplay
from fedul._utils.documents import Document
from fedul.core import ColumnReading

Verdict = Literal["enough", "weak", "not enough"]
StoredVerdict = Literal["enough", "weak", "not enough", "costly"]
"""With that of documents of earlier versions: enough, but each row is worth little."""
Compared = Literal["all sets", "sets of a client"]


@dataclass(frozen=True)
class ClientCheck:
    """Diagnostics of one client: how well its priors tell the classes apart, and how much its rows contribute."""

    client: str
    rows: int
    sets: int
    rank: int  # of the class priors
    condition: float | None  # condition number of the class priors; None if this client alone is not identifiable
    information: float  # mutual information of class and set, divided by the entropy of the class
    efficiency: float  # labels that a row is worth, on average over pairs of classes


@dataclass(frozen=True)
class FederationTotals:
    """Sizes of all clients, and the rank of the class priors that are compared.

    The class priors determine a classifier if `rank` is `classes` - 1, see `fedul.core.priors.joint_rank`.
    """

    clients: int
    rows: int
    sets: int
    rank: int
    classes: int


@dataclass(frozen=True)
class PairCheck:
    """Diagnostics of two classes.

    Between them, a row is worth `low` to `high` labels. `contrast` is the standard deviation, over the sets of a
    client, of the share of the first class among the two.
    """

    first: str
    second: str
    low: float
    high: float
    contrast: float


@dataclass(frozen=True)
class Forecast:
    """Number of labels that all rows are worth.

    `rows` counts a row that is in several sets once; `share_low` and `share_high` are labels per row.
    """

    rows: int
    labels_worth_low: int
    labels_worth_high: int
    share_low: float
    share_high: float


@dataclass(frozen=True)
class SetComparison:
    """What can be learned if some sets are compared: the sets of each client, or those of all clients as if of one."""

    verdict: Verdict
    identifiable: bool
    rank: int
    forecast: Forecast


@dataclass(frozen=True)
class ClassReading:
    """A class as it was read: its share of all rows, the rows to be expected of it, and its share in the test prior."""

    name: str
    share: float
    rows: float
    test_share: float


@dataclass(frozen=True)
class PriorsReading:
    """Class priors as they were read.

    `unit` is proportions, percentages or counts, and empty for priors from Python or of research data. `of` is what
    they speak of: a population, the rows of the sets, or their training rows. `rounding` is the largest rounding error
    of a share.
    """

    unit: str
    of: tuple[str, ...]
    rounding: float


@dataclass(frozen=True)
class NearDuplicates:
    """Two sets of a client whose class mixes differ by no more than chance explains.

    `distance` is the total variation between their priors. `chance` is the total variation to be expected between the
    class shares of two samples of these sizes from the same population.
    """

    client: str
    first: str
    second: str
    distance: float
    chance: float


@dataclass(frozen=True)
class WeakClass:
    """A class with little support: rare in every set, equally common in the sets of each client, or with few rows."""

    name: str
    why: Literal["rare", "alike", "few rows"]
    value: float  # rare: largest share in a set; alike: largest difference within a client; few rows: expected rows


@dataclass(frozen=True)
class SmallSet:
    """A set with hardly any rows."""

    client: str
    name: str
    rows: int


@dataclass(frozen=True)
class SuggestedSplit:
    """A set to split into halves that differ in the worst pair of classes; every set if a single one has little effect.

    In each half, the shares of the two classes differ from those of the set by `shift`. Between these classes, a row
    would then be worth `low` to `high` labels.
    """

    client: str | None  # None: every set
    name: str | None
    rows: int
    shift: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class CheckResult(Document, RichDisplay):
    """Diagnostics of data and class priors, returned by `fedul.check`.

    Parameters
    ----------
    verdict : {"enough", "weak", "not enough"}
        Whether the data is enough to train on with the method: "not enough" if the priors do not determine a
        classifier, the rows are worth fewer than 5 labels per class, or a class has fewer than 5 rows; "weak" if they
        may be worth fewer than 20 labels per class, or a class has fewer than 20 rows. Documents of earlier versions
        may have "costly".
    summary : str
        The verdict in one sentence.
    advice : tuple of str
        Suggestions, the most useful first.
    identifiable : bool
        Whether the class priors determine a classifier.
    totals : FederationTotals
        Sizes and joint rank of the federation.
    forecast : Forecast
        Number of labels that all rows are worth.
    clients : tuple of ClientCheck
        Diagnostics of every client.
    pairs : tuple of PairCheck
        The pairs of classes that are hardest to tell apart, the worst first.
    near_duplicates, weak_classes, small_sets : tuple
        Problems of the data: pairs of similar sets, classes with little support, and sets with few rows.
    split : SuggestedSplit or None
        The split that would help most; None if no set has both classes of the worst pair.
    warnings : tuple of str
        Warnings from loading the data.
    compared : {"all sets", "sets of a client"}
        Which sets the method compares with each other. `verdict`, `identifiable`, `totals.rank`, `forecast` and `pairs`
        are for this comparison.
    pooled, within_clients : SetComparison or None
        The same if the sets of all clients are compared, and if only the sets of each client are. None in a document of
        an earlier version.
    classes : tuple of ClassReading
        The classes, as they were read.
    priors : PriorsReading or None
        The class priors, as they were read; None in a document of an earlier version.
    columns : tuple of ColumnReading
        The columns of a user's table, as they were read; empty for other data.

    Examples
    --------
    >>> import fedul
    >>> result = fedul.check(fedul.load("digits", clients=2, sets=10, rows=400), method="fedul")
    >>> result.identifiable, result.compared
    (True, 'sets of a client')
    """

    verdict: StoredVerdict
    summary: str
    advice: tuple[str, ...]
    identifiable: bool
    totals: FederationTotals
    forecast: Forecast
    clients: tuple[ClientCheck, ...]
    pairs: tuple[PairCheck, ...]
    near_duplicates: tuple[NearDuplicates, ...] = ()
    weak_classes: tuple[WeakClass, ...] = ()
    small_sets: tuple[SmallSet, ...] = ()
    split: SuggestedSplit | None = None
    warnings: tuple[str, ...] = ()
    compared: Compared = "sets of a client"
    pooled: SetComparison | None = None
    within_clients: SetComparison | None = None
    classes: tuple[ClassReading, ...] = ()
    priors: PriorsReading | None = None
    columns: tuple[ColumnReading, ...] = ()

    def __rich__(self) -> Any:
        from fedul.evaluation.check_display import check_view

        return check_view(self)


def format_share_range(low: float, high: float) -> str:
    """Return a range of shares as text in per cent, with two digits for small ones; one number if both ends are equal.

    Examples
    --------
    >>> format_share_range(0.0123, 0.5), format_share_range(0.3, 0.3)
    ('1.2 to 50 %', '30 %')
    """
    ends = [f"{100 * end:.0f}" if end >= 0.1 or end < 1e-5 else f"{100 * end:.2g}" for end in (low, high)]
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} %"
