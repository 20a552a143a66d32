"""Test whether all sets of all clients share the class-conditional distributions, as FedUL assumes.

If they do, the mean of any feature over set m is Pi_m mu, with one mu (K, J) for all clients, up to noise. The noise
follows from the rows within sets (`set_noise.py`), and the lack of fit is compared with draws of it
(`lack_of_fit.py`). After a rejection, the fewest clients or sets without which the others fit are searched, and the
columns that differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedul.core import SIGNIFICANCE, Index, Matrix
from fedul.evaluation.lack_of_fit import LackOfFit
from fedul.evaluation.out_of_fold import OutOfFoldPredictions
from fedul.evaluation.set_means import SetMeans, summarize_sets

COMMON_SHARE = 0.3
"""Share of a client's misfit that its sets have in common, above which its rows differ and not its priors."""

SET_SHARE = 0.7
"""Share of a client's misfit that one set must have, so that the set is named and not the client."""

FITS = 0.01
"""P-value above which the others are taken to fit without the clients that are named."""

NEGLIGIBLE, TOLERABLE = 0.1, 0.3
"""Shares of the misfit that may be left without the clients and sets that are named, although the others do not fit:
below the first no more are searched, and above the second none are named."""

SMALLEST_DEVIATION = 0.5
"""Least standard deviation within classes that a difference is stated in, as a share of that of all rows: a column that
hardly varies within sets, e.g. a price, would differ by hundreds."""

MAX_MISFITS = 3
MAX_COLUMNS = 5
"""Maximum number of misfits, and of columns, that are reported."""


@dataclass(frozen=True)
class Misfit:
    """A client, or one of its sets, that does not fit the others; `set` is None for the client as a whole."""

    client: str
    set: str | None
    p_value: float
    why: str


@dataclass(frozen=True)
class ColumnDifference:
    """A column that differs beyond what the class priors explain, and where it differs most.

    `difference` is that of its mean from what the others let expect, in standard deviations within classes; `set` is
    None for all sets of the client.
    """

    column: str
    client: str
    set: str | None
    difference: float
    p_value: float


@dataclass(frozen=True)
class AssumptionTest:
    """Outcome of the test: its p-value, or None and the reason why there is none.

    A rejection without misfits means that no few clients or sets explain it.
    """

    p_value: float | None
    misfits: tuple[Misfit, ...] = ()
    reason: str | None = None
    columns: tuple[ColumnDifference, ...] = ()

    @property
    def contradicted(self) -> bool:
        """Whether the data contradict the assumption significantly."""
        return self.p_value is not None and self.p_value < SIGNIFICANCE


TESTED_AT = "was tested at"
"""Start of a reason that says what single sites found, where there is no common p-value."""
ONE_SET = "the rows of this set are not the mixture of classes that its priors state"
ROWS_DIFFER = (
    "its rows look different from other clients' rows of the same classes: all its sets deviate in the same way"
)
MIXES_DIFFER = "its sets are not the mixtures that its priors state: they deviate in different ways"
CONTRADICTION = "the only two clients that are left contradict each other; either may be the wrong one"
TOO_FEW_SETS = (
    "there are no more sets than the class priors can explain in any case; give more sets or clients, or sets that "
    "differ more"
)
TOO_FEW_ROWS = "the sets have too few rows, or rows do not vary; give sets with more rows"


def check_assumption(predictions: OutOfFoldPredictions, *, seed: int = 0) -> AssumptionTest:
    """Test the assumption, and find the clients and sets that violate it, the worst first, and the columns that differ.

    If the assumption is true, one in twenty federations is rejected.
    """
    sets = summarize_sets(predictions, seed=seed)
    if sets is None:
        return AssumptionTest(None, reason=TOO_FEW_ROWS)
    fit = LackOfFit.of(sets, seed)
    if fit is None:
        return AssumptionTest(None, reason=TOO_FEW_SETS)
    if fit.p_value >= SIGNIFICANCE:
        return AssumptionTest(fit.p_value)
    names = _Names.of(predictions)
    found = _find_misfits(fit)
    misfits = tuple(Misfit(*names.of_set(sets.number[m.place], m.one_set), m.p_value, m.why) for m in found)
    return AssumptionTest(fit.p_value, misfits, columns=_find_columns(fit, found, names))


@dataclass(frozen=True)
class _Names:
    """Names of clients, sets and columns."""

    sets: Sequence[tuple[str, str]]
    columns: Sequence[str]

    @classmethod
    def of(cls, predictions: OutOfFoldPredictions) -> _Names:
        sets = [(client.name, name) for client in predictions.clients for name in client.set_names]
        return cls(sets, predictions.columns)

    def of_set(self, number: int, one_set: bool) -> tuple[str, str | None]:
        client, name = self.sets[number]
        return client, name if one_set else None


@dataclass(frozen=True)
class _MisfitPlace:
    """A misfit; `place` is that of the set, or of the first set of the client, among all sets."""

    place: int
    one_set: bool
    p_value: float
    why: str

    def places(self, sets: SetMeans) -> Index:
        """Return the places of all sets that are meant."""
        return np.array([self.place]) if self.one_set else np.flatnonzero(sets.client == sets.client[self.place])


def _find_misfits(fit: LackOfFit) -> list[_MisfitPlace]:
    """Return the fewest clients and sets without which the others fit, the worst first; none if these are not few."""
    most = min(MAX_MISFITS, max(1, len(fit.starts if fit.by_client else fit.weights) // 4))
    place = {int(number): m for m, number in enumerate(fit.sets.number)}
    found: list[_MisfitPlace] = []
    current: LackOfFit | None = fit
    while current is not None and len(found) < (MAX_MISFITS if fit.by_client else most):
        worst = _worst_set(current) or (_worst_client(current) if current.by_client else None)
        if worst is None or worst.p_value >= SIGNIFICANCE:
            break
        if not worst.one_set and sum(not each.one_set for each in found) == most:
            break
        if worst.why == CONTRADICTION:
            found += [
                _MisfitPlace(place[int(current.sets.number[start])], False, worst.p_value, CONTRADICTION)
                for start in current.starts
            ]
            return found
        found.append(
            _MisfitPlace(place[int(current.sets.number[worst.place])], worst.one_set, worst.p_value, worst.why)
        )
        current = LackOfFit.of(current.sets.without(worst.places(current.sets)), fit.seed)
        if current is None or current.p_value >= FITS or _excess(current) < NEGLIGIBLE * _excess(fit):
            return found
    return found if current is not None and found and _excess(current) < TOLERABLE * _excess(fit) else []


def _excess(fit: LackOfFit) -> float:
    """Return the misfit of all sets beyond that of the draws."""
    squares = fit.observed["all"][0, 0]
    return max(0.0, float(squares - fit.drawn["all"].mean()))


def _worst_client(fit: LackOfFit) -> _MisfitPlace:
    """Return the client that fits worst, in all features or, if that is clearer, in one."""
    scores, p_values = fit.scores["client"][0], fit.p_values("client")
    by_feature = fit.p_values("offset").reshape(len(scores), -1).min(axis=1)
    if by_feature.min() < p_values.min():
        scores, p_values = fit.scores["offset"][0].reshape(len(scores), -1).max(axis=1), by_feature
    worst = int(scores.argmax())
    place, p_value = int(fit.starts[worst]), float(p_values[worst])
    if len(fit.starts) == 2:
        return _MisfitPlace(place, False, p_value, CONTRADICTION)
    return _MisfitPlace(
        place, False, p_value, ROWS_DIFFER if _common_share(fit, worst) > COMMON_SHARE else MIXES_DIFFER
    )


def _common_share(fit: LackOfFit, client: int) -> float:
    """Return the share of a client's misfit, beyond noise, that its sets have in common."""
    residuals = fit.residuals(fit.means) @ fit.whitening
    common = fit.offset_weights[client] * np.square(fit.offsets(residuals)[client]).sum()
    chance = fit.drawn["client"][:, client].mean()
    sets = (fit.sets.client == fit.sets.client[fit.starts[client]]).sum()
    total = fit.observed["client"][0, client] - chance
    return float((common - chance / sets) / max(total, 1e-12))


def _worst_set(fit: LackOfFit) -> _MisfitPlace | None:
    """Return the worst set if it has most of the misfit of its client, and for a single client in any case."""
    if "set" not in fit.scores:
        return None
    place = int(fit.scores["set"][0].argmax())
    found = _MisfitPlace(place, True, float(fit.p_values("set")[place]), ONE_SET)
    if not fit.by_client:
        return found
    client = int(np.searchsorted(fit.starts, place, side="right")) - 1
    if client != int(fit.scores["client"][0].argmax()):
        return None
    excess = {
        name: fit.observed[name][0, at] - fit.drawn[name][:, at].mean()
        for name, at in (("set", place), ("client", client))
    }
    return found if excess["set"] >= SET_SHARE * excess["client"] and found.p_value < SIGNIFICANCE else None


def _find_columns(fit: LackOfFit, found: Sequence[_MisfitPlace], names: _Names) -> tuple[ColumnDifference, ...]:
    """Return the columns that differ significantly, at the clients and sets that are named or else anywhere."""
    if not names.columns:
        return ()
    differences: list[ColumnDifference] = []
    for misfit in found:
        others = [each.places(fit.sets) for each in found if each is not misfit and misfit.why != CONTRADICTION]
        part = LackOfFit.of(fit.sets.without(np.concatenate(others)), fit.seed) if others else fit
        if part is None or misfit.why == MIXES_DIFFER:
            continue
        place = int(np.searchsorted(part.sets.number, fit.sets.number[misfit.place]))
        differences += _set_columns(part, place, names) if misfit.one_set else _client_columns(part, place, names)
    if not found:
        differences += _client_columns(fit, None, names) if fit.by_client else []
        for feature in np.flatnonzero(fit.p_values("feature") < SIGNIFICANCE):
            place = int(np.abs(_set_scores(fit)[:, feature]).argmax())
            p_value = float(fit.p_values("feature")[feature])
            differences.append(
                _difference(fit, names, place, True, int(feature), _set_offsets(fit)[place, feature], p_value)
            )
    best: dict[str, ColumnDifference] = {}
    for each in sorted(differences, key=lambda each: (each.set is not None, -abs(each.difference))):
        best.setdefault(each.column, each)  # differences of whole clients come first
    return tuple(sorted(best.values(), key=lambda each: -abs(each.difference))[:MAX_COLUMNS])


def _client_columns(fit: LackOfFit, place: int | None, names: _Names) -> list[ColumnDifference]:
    """Return the features in which one client differs, given by one of its sets, or all clients."""
    shape = (len(fit.starts), fit.means.shape[1])
    offsets = fit.offsets(fit.residuals(fit.means))
    p_values = fit.p_values("offset").reshape(shape)
    chosen = range(shape[0]) if place is None else [int(np.searchsorted(fit.starts, place, side="right")) - 1]
    return [
        _difference(fit, names, int(fit.starts[c]), False, j, offsets[c, j], float(p_values[c, j]))
        for c in chosen
        for j in range(shape[1])
        if p_values[c, j] < SIGNIFICANCE
    ]


def _set_columns(fit: LackOfFit, place: int, names: _Names) -> list[ColumnDifference]:
    """Return the features in which a set differs (Bonferroni correction)."""
    scores, offsets = _set_scores(fit)[place], _set_offsets(fit)[place]
    p_values = [min(1.0, len(scores) * math.erfc(abs(score) / math.sqrt(2))) for score in scores]
    return [
        _difference(fit, names, place, True, j, offsets[j], p_values[j])
        for j in range(len(scores))
        if p_values[j] < SIGNIFICANCE
    ]


def _set_offsets(fit: LackOfFit) -> Matrix:
    """Return the deviation of each set from what the others let expect (S, J)."""
    residuals = fit.residuals(fit.means)
    offsets: Matrix = residuals / np.where(fit.freedom > 0, fit.freedom, np.inf)[:, None]
    return offsets


def _set_scores(fit: LackOfFit) -> Matrix:
    """Return the same in standard errors."""
    variances = fit.noise.variances / fit.sets.counts[:, None]
    scores: Matrix = _set_offsets(fit) * np.sqrt(fit.freedom[:, None] / np.maximum(variances, 1e-12))
    return scores


def _difference(
    fit: LackOfFit, names: _Names, place: int, one_set: bool, feature: int, difference: float, p_value: float
) -> ColumnDifference:
    client, set_name = names.of_set(fit.sets.number[place], one_set)
    deviation = fit.noise.deviations[feature]  # where all rows have 1
    difference *= deviation / max(deviation, SMALLEST_DEVIATION)
    return ColumnDifference(names.columns[fit.sets.features[feature]], client, set_name, float(difference), p_value)
