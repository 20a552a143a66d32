"""The document `evaluation.json`: accuracy without labels, the assumption test, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedul._utils.display import RichDisplay
from fedul._utils.documents import Document
from fedul.evaluation.assumption import AssumptionTest
from fedul.evaluation.prior_sensitivity import PriorSensitivity
from fedul.evaluation.set_effects import SetEffects

Shares = tuple[tuple[float, ...], ...]  # (K, K)

MAJORITY, TOP_CLASS, SOFT_SETS = "majority class", "top class of the set", "soft-set logistic regression"


@dataclass(frozen=True)
class ClassEstimate:
    """Recall or precision of one class, with its 95 % interval."""

    class_: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SetCalibration:
    """Share of a class in a set: stated by the priors, and predicted by the classifier."""

    client: str
    set: str
    class_: str
    stated: float
    predicted: float
    standard_error: float

    @property
    def deviation(self) -> float:
        """Difference between the two in standard errors."""
        return (self.predicted - self.stated) / self.standard_error if self.standard_error > 0 else 0.0

    @property
    def distance(self) -> float:
        """Absolute value of `deviation`."""
        return abs(self.deviation)


@dataclass(frozen=True)
class Baseline:
    """A naive classifier.

    Parameters
    ----------
    name : {"majority class", "top class of the set", "soft-set logistic regression"}
        The first always predicts the most common class; the second the most common class of a row's set, which must be
        known; the third is a logistic regression with the class priors of a row's set as soft labels.
    estimated_accuracy : float or None
        Accuracy at the test prior; None if it cannot be estimated. For the first two it follows from the priors.
    interval : tuple of float or None
        95 % interval; None where the accuracy is known or cannot be estimated.
    """

    name: str
    estimated_accuracy: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class PredictionSetCheck:
    """Prediction sets with a nominal coverage: how often they contain the true class, and their mean size."""

    coverage: float
    estimated: float
    size: float


@dataclass(frozen=True)
class SiteEvaluation:
    """What one site reports of the classifier, from its own held-out rows."""

    site: str
    rows: int
    accuracy: float
    standard_error: float
    p_value: float | None = None


@dataclass(frozen=True, repr=False)
class Evaluation(Document, RichDisplay):
    """Evaluation of a classifier without labels, as `fedul.evaluate` returns it.

    Parameters
    ----------
    estimated_accuracy : float or None
        Accuracy in the population that the rows were drawn from, at the test prior; None if it cannot be estimated.
    interval : tuple of float or None
        95 % interval of the accuracy; None if it cannot be estimated.
    rows : int
        Different rows that were predicted by a model that was not trained on them.
    classes : tuple of str
        Names of the K classes.
    assumption : AssumptionTest
        Test of what the estimates rest on.
    reason : str or None
        Why the accuracy cannot be estimated, as it follows "because".
    remedies : tuple of str
        What would help, as sentences.
    width_with_labels : float or None
        Width of the interval if all these rows had labels.
    labels_used : int
        Labels that training used.
    accuracy : float or None
        Accuracy measured with labels, where they exist.
    confusion, confusion_low, confusion_high : tuple of tuples of float
        Share of rows of a class (row) that are predicted as each class (column), with the ends of 95 % intervals.
    recall, precision : tuple of ClassEstimate
        For each class; precision is that at the test prior. Empty, as `confusion`, if the accuracy cannot be estimated.
    calibration : tuple of SetCalibration
        For each class in each set.
    prior_sensitivity : PriorSensitivity or None
        Effect of uncertain priors; None where all priors are certain.
    set_effects : SetEffects or None
        Differences between sets beyond their class mix.
    baselines : tuple of Baseline
        Naive classifiers to compare with.
    prediction_sets : tuple of PredictionSetCheck
        Estimated coverage of prediction sets, on sets left out; empty if the accuracy cannot be estimated.
    sites : tuple of SiteEvaluation
        Reports of the sites. For a run on Flower only, where everything by class or set stays empty.

    Examples
    --------
    >>> import fedul
    >>> study = fedul.load("digits", clients=2, rows=400)
    >>> evaluation = fedul.evaluate(fedul.train(study, method="fedul", model="linear", rounds=1), folds=2)
    >>> len(evaluation.classes), evaluation.labels_used
    (10, 0)
    """

    estimated_accuracy: float | None
    interval: tuple[float, float] | None
    rows: int
    classes: tuple[str, ...]
    assumption: AssumptionTest
    reason: str | None = None
    remedies: tuple[str, ...] = ()
    width_with_labels: float | None = None
    labels_used: int = 0
    accuracy: float | None = None
    confusion: Shares = ()
    confusion_low: Shares = ()
    confusion_high: Shares = ()
    recall: tuple[ClassEstimate, ...] = ()
    precision: tuple[ClassEstimate, ...] = ()
    calibration: tuple[SetCalibration, ...] = ()
    prior_sensitivity: PriorSensitivity | None = None
    set_effects: SetEffects | None = None
    baselines: tuple[Baseline, ...] = ()
    prediction_sets: tuple[PredictionSetCheck, ...] = ()
    sites: tuple[SiteEvaluation, ...] = ()

    def __post_init__(self) -> None:
        missing = [self.estimated_accuracy is None, self.interval is None, self.reason is not None]
        if len(set(missing)) > 1:
            raise ValueError("an evaluation has an estimated accuracy and its interval, or a reason for having none")
        size = len(self.classes)
        for matrix in (self.confusion, self.confusion_low, self.confusion_high):
            if matrix and [len(row) for row in matrix] != [size] * size:
                raise ValueError(f"a confusion matrix is not {size} by {size}")
            if not all(0 <= share <= 1 for row in matrix for share in row):
                raise ValueError("a confusion matrix has shares outside of 0..1")

    def __rich__(self) -> Any:
        from fedul.evaluation.display import evaluation_view

        return evaluation_view(self)
