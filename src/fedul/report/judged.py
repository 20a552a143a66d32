"""`evaluation.json` and `check.json`: what was found of a run without labels, read back with a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedul.errors import InputError
from fedul.files import read_json

Kind = TypeVar("Kind")
Numbers = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class Estimate:
    """An estimate and its interval; what could not be estimated is None."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Calibrated:
    """How common a class is in a set, as it was stated and as the classifier finds it."""

    client: str
    set: str
    of_class: str
    stated: float
    predicted: float
    standard_error: float

    @property
    def apart(self) -> float:
        """By how many standard errors the two differ."""
        return (self.predicted - self.stated) / self.standard_error if self.standard_error > 0 else 0.0


@dataclass(frozen=True)
class Misfit:
    """A set that does not look like a mixture of the shared classes, or all sets of a client."""

    client: str
    set: str  # "all" for the client as a whole
    p_value: float | None
    why: str


@dataclass(frozen=True)
class Evaluation:
    """What is estimated of a classifier without labels."""

    accuracy: Estimate
    true_accuracy: float | None  # where labels exist, to compare with
    width_with_labels: float | None  # of the interval, if every row had a label
    classes: Sequence[str]
    confusion: Numbers  # (K, K): true class, predicted class
    confusion_low: Numbers
    confusion_high: Numbers
    recall: Mapping[str, Estimate]
    precision: Mapping[str, Estimate]
    calibration: Sequence[Calibrated]
    p_value: float | None  # of the assumption that all sets are mixtures of the same classes
    misfits: Sequence[Misfit]
    reason: str | None  # why there is no p-value


@dataclass(frozen=True)
class Checked:
    """One client, as its class priors let it contribute."""

    name: str
    rows: int
    sets: int
    rank: int
    condition: float | None  # None: infinite
    information: float | None


@dataclass(frozen=True)
class Check:
    """Whether the class priors are enough."""

    identifiable: bool
    advice: Sequence[str]
    clients: Sequence[Checked]


def evaluation_of(file: Path) -> Evaluation | None:
    """The evaluation in a file; None where there is no file."""
    return _read(file, _evaluation, "fedul evaluate")


def check_of(file: Path) -> Check | None:
    """The check in a file; None where there is no file."""
    return _read(file, _check, "fedul check")


def _read(file: Path, made: Callable[[Mapping[str, Any]], Kind], command: str) -> Kind | None:
    if not file.exists():
        return None
    stored = read_json(file)
    try:
        return made(stored)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{file}: damaged; delete it, and have '{command}' write it again.") from None


def _evaluation(stored: Mapping[str, Any]) -> Evaluation:
    low, high = stored.get("interval") or (None, None)
    tested = stored.get("assumption") or {}
    classes = tuple(map(str, stored["classes"]))
    return Evaluation(
        accuracy=Estimate(_number(stored["estimated_accuracy"]), _number(low), _number(high)),
        true_accuracy=_number(stored.get("accuracy")),
        width_with_labels=_number(stored.get("width_with_labels")),
        classes=classes,
        confusion=_square(stored.get("confusion"), len(classes)),
        confusion_low=_square(stored.get("confusion_low"), len(classes)),
        confusion_high=_square(stored.get("confusion_high"), len(classes)),
        recall=_estimates(stored.get("recall")),
        precision=_estimates(stored.get("precision")),
        calibration=[
            Calibrated(
                str(line["client"]),
                str(line["set"]),
                str(line["class"]),
                float(line["stated"]),
                float(line["predicted"]),
                float(line["standard_error"]),
            )
            for line in stored.get("calibration") or ()
        ],
        p_value=_number(tested.get("p_value")),
        misfits=[
            Misfit(
                str(line["client"]),
                "all" if line.get("set") is None else str(line["set"]),
                _number(line.get("p_value")),
                str(line.get("why") or ""),
            )
            for line in tested.get("misfits") or ()
        ],
        reason=None if tested.get("reason") is None else str(tested["reason"]),
    )


def _check(stored: Mapping[str, Any]) -> Check:
    return Check(
        identifiable=bool(stored["identifiable"]),
        advice=[str(sentence) for sentence in stored.get("advice") or ()],
        clients=[
            Checked(
                str(line["client"]),
                int(line["rows"]),
                int(line["sets"]),
                int(line["rank"]),
                _number(line.get("condition")),
                _number(line.get("information")),
            )
            for line in stored.get("clients") or ()
        ],
    )


def _estimates(stored: Any) -> dict[str, Estimate]:
    return {
        str(line["class"]): Estimate(_number(line["value"]), _number(line.get("low")), _number(line.get("high")))
        for line in stored or ()
    }


def _square(stored: Any, size: int) -> Numbers:
    """A matrix (K, K); empty where there is none."""
    rows = [[_number(value) for value in row] for row in stored or ()]
    if rows and (len(rows) != size or any(len(row) != size for row in rows)):
        raise ValueError(f"not {size} by {size}")
    return rows


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
