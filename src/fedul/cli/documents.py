"""Documents that `--json` prints and no other part of fedul has. `docs/reference/json.md` lists all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedul._utils.documents import Document


@dataclass(frozen=True)
class FilesDocument(Document):
    """What `fedul example`, `federation new` and `federation keys` print: the files that they wrote."""

    files: Sequence[str]


@dataclass(frozen=True)
class RosterDocument(Document):
    """What the commands of `fedul federation roster` print: the file, its fingerprint, and that of each site's key."""

    roster: str
    fingerprint: str
    sites: Mapping[str, str]


@dataclass(frozen=True)
class ReportDocument(Document):
    """What `fedul report` prints: the run, the page, and parts that the page does not have."""

    run: str
    out: str
    missing: Sequence[str]


@dataclass(frozen=True)
class WatchDocument(Document):
    """What `fedul watch` prints before it serves the page: the run folder and the address of the page."""

    run: str
    url: str


@dataclass(frozen=True)
class ExportDocument(Document):
    """What `fedul export` prints.

    `largest_difference` is between the probabilities of the ONNX file and of the classifier; `card` is the model card.
    Each is None for the other format.
    """

    run: str
    format: str
    files: Sequence[str]
    largest_difference: float | None = None
    card: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PredictDocument(Document):
    """What `fedul predict` prints. Values of rows are None if they are in the file `out`, or were not asked for.

    Parameters
    ----------
    run, out : str
        The run, and the file that was written, if any.
    classes : sequence of str
        Names of the classes, in the order of the probabilities.
    rows : int
        Number of rows.
    ignored_columns : sequence of str
        Columns of the rows that were not used.
    coverage : float or None
        Probability of the prediction sets.
    prior : mapping or None
        By class, its estimated share with an interval.
    class_, probabilities, sets : sequence or None
        By row, the class, the probability of each class, and the classes of its prediction set.
    file : sequence of str or None
        By row, the image.
    keep : mapping of str to sequence, or None
        By column to keep, its values.
    """

    run: str
    out: str | None
    classes: Sequence[str]
    rows: int
    ignored_columns: Sequence[str] = ()
    coverage: float | None = None
    prior: Mapping[str, Mapping[str, float]] | None = None
    class_: Sequence[str] | None = None
    probabilities: Sequence[Sequence[float]] | None = None
    sets: Sequence[Sequence[str]] | None = None
    file: Sequence[str] | None = None
    keep: Mapping[str, Sequence[Any]] | None = None
