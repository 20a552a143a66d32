"""Test whether all sets of all clients share the class-conditional distributions, as FedUL assumes.

If they do, the mean of any statistic g of a row over set m is Pi_m mu, with one mu (K, G) for all clients. So mu is
fitted to all clients but one, and the residuals of the sets of that one are compared with draws from the fitted
mixtures. A model may fit the rows of a deviating client well; therefore g consists of the predicted probabilities of a
row and its principal components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul.core import RANK_TOLERANCE, SIGNIFICANCE, Index, Matrix
from fedul.evaluation.out_of_fold import OutOfFoldPredictions
from fedul.evaluation.responsibilities import PredictionTable, estimate_responsibilities, estimate_temperature, flatten

COMMON_SHARE = 0.2
"""Share of a client's misfit that its sets have in common: with inverted images 0.3 to 0.8, else under 0.1."""

DRAWS = 300
MIN_DRAWS = 100
MAX_WORK = 4_000_000
"""Maximum of rows times draws: with many rows there are fewer draws, but at least MIN_DRAWS."""

LARGE_SET = 250
"""Mean rows per set above which means are drawn from a normal distribution and not row by row."""

MAX_MISFITS = 10
"""Maximum number of misfits that are reported."""


@dataclass(frozen=True)
class Misfit:
    """A client, or one of its sets, that does not fit the others; `set` is None for the client as a whole."""

    client: str
    set: str | None
    p_value: float
    why: str


@dataclass(frozen=True)
class AssumptionTest:
    """Outcome of the test: its p-value, or None and the reason why there is none."""

    p_value: float | None
    misfits: tuple[Misfit, ...] = ()
    reason: str | None = None


def check_assumption(predictions: OutOfFoldPredictions, *, seed: int = 0) -> AssumptionTest:
    """Test the assumption, and find the clients and sets that violate it, the worst first.

    P-values account for the number of clients: if the assumption is true, one in twenty federations has a misfit.
    """
    table, priors = flatten(predictions)
    sets, generator = _summarize_sets(table, priors), np.random.default_rng(seed)
    active = np.flatnonzero(table.counts > 0)
    single_client = len(np.unique(table.client[active])) == 1
    group_of = np.arange(len(priors)) if single_client else table.client  # the sets of a single client are compared
    names = [(client.name, name) for client in predictions.clients for name in client.set_names]
    misfits, overall = list[Misfit](), None
    while len(misfits) < MAX_MISFITS and (fit := _leave_one_out(sets, active, group_of[active])) is not None:
        worst = fit.test(generator)
        overall = worst.p_value if overall is None else overall
        if worst.p_value >= SIGNIFICANCE:
            break
        if fit.groups == 2 and not single_client:
            why = "the only two clients that are left contradict each other; either may be the wrong one"
            misfits += [Misfit(names[place][0], None, worst.p_value, why) for place in fit.first_sets()]
            break
        client, set_name = names[worst.worst_set]
        one_set = single_client or worst.one_set
        misfits.append(Misfit(client, set_name if one_set else None, worst.p_value, ONE_SET if one_set else worst.why))
        active = active[active != worst.worst_set] if one_set else active[group_of[active] != group_of[worst.worst_set]]
    if overall is None:
        return AssumptionTest(None, reason=TOO_FEW_SETS if single_client else TOO_SIMILAR)
    return AssumptionTest(overall, tuple(misfits))


ONE_SET = "the rows of this set are not the mixture of classes that its priors state"
ROWS_DIFFER = (
    "its rows look different from other clients' rows of the same classes: all its sets deviate in the same way"
)
MIXES_DIFFER = "its sets are not the mixtures that its priors state: they deviate in different ways"
TOO_FEW_SETS = "one client with no more sets than classes leaves nothing to compare; give more sets or clients"
TOO_SIMILAR = (
    "without any one client, the sets of the others do not determine how each class looks; give sets that differ more"
)


@dataclass(frozen=True, eq=False)
class _Sets:
    """Priors, size and mean of g of every set, and the distribution of g under the assumption."""

    priors: Matrix  # (S, K)
    counts: Matrix  # (S,)
    exact: NDArray[np.bool_]  # (S,)
    means: Matrix  # (S, G), whitened: the scatter of rows within a class is 1 in all directions
    statistics: Matrix  # (n, G): g of all rows
    cumulative: Matrix  # (K n,): cumulative probabilities of the rows given class k, plus k, for `np.searchsorted`
    centres: Matrix  # (K, G)
    roots: Matrix  # (K, G, G): square roots of the scatter within each class
    overlaps: list[tuple[Index, Matrix]]  # sets of a client that share rows, and the root of their correlation

    def draw(self, generator: np.random.Generator) -> Matrix:
        """Return random means (S, G) minus their expectation, which does not affect residuals."""
        whole = np.round(self.counts[:, None] * self.priors).astype(np.int64)
        chance = generator.multinomial(self.counts.astype(np.int64), self.priors)
        counts = np.where(self.exact[:, None], whole, chance)  # (S, K)
        size = np.maximum(self.counts, 1)[:, None]
        large = self.counts.sum() > LARGE_SET * len(self.counts)
        noise = self._draw_by_class(counts, generator) if large else self._draw_by_row(counts, generator)
        noise = (noise + (counts - self.counts[:, None] * self.priors) @ self.centres) / np.sqrt(size)
        for group_sets, root in self.overlaps:
            noise[group_sets] = root @ noise[group_sets]
        return noise / np.sqrt(size)

    def _draw_by_row(self, counts: Index, generator: np.random.Generator) -> Matrix:
        """Return sums (S, G) over rows of each class, drawn with their responsibilities as probabilities."""
        classes = np.tile(np.arange(counts.shape[1]), len(counts)).repeat(counts.ravel())
        found = np.searchsorted(self.cumulative, classes + generator.uniform(size=len(classes)))
        drawn = (
            self.statistics[np.minimum(found, len(self.cumulative) - 1) % len(self.statistics)] - self.centres[classes]
        )
        total, rows = np.zeros_like(self.means), counts.sum(axis=1)
        filled = rows > 0
        total[filled] = np.add.reduceat(drawn, (np.cumsum(rows) - rows)[filled])
        return total

    def _draw_by_class(self, counts: Index, generator: np.random.Generator) -> Matrix:
        """Return the same sums, from a normal distribution for each class."""
        noise = generator.standard_normal((*counts.shape, self.means.shape[1]))
        total: Matrix = np.einsum("mk,kgh,mkh->mg", np.sqrt(counts), self.roots, noise, optimize=True)
        return total


def _summarize_sets(table: PredictionTable, priors: Matrix) -> _Sets:
    shares = estimate_responsibilities(table, priors, estimate_temperature(table, priors).best)
    statistics = np.hstack([np.exp(table.log_probabilities), table.features])  # (n, G)
    statistics -= statistics.mean(axis=0)
    weights = shares / np.maximum(shares.sum(axis=0), 1e-12)  # (n, K)
    centres = weights.T @ statistics  # (K, G)
    scatters = np.stack([(statistics * weights[:, [k]]).T @ statistics for k in range(table.classes)])  # (K, G, G)
    scatters -= centres[:, :, None] * centres[:, None, :]
    whiten = _whitening(np.einsum("k,kgh->gh", shares.mean(axis=0), scatters))
    statistics = statistics @ whiten
    cumulative = np.cumsum(weights, axis=0)
    return _Sets(
        priors=priors,
        counts=table.counts,
        exact=table.exact,
        means=table.over_sets(statistics) / np.maximum(table.counts, 1)[:, None],
        statistics=statistics,
        cumulative=(cumulative / np.maximum(cumulative[-1], 1e-12) + np.arange(table.classes)).T.ravel(),
        centres=centres @ whiten,
        roots=_root(whiten.T @ scatters @ whiten),
        overlaps=_find_overlaps(table),
    )


def _whitening(scatter: Matrix) -> Matrix:
    """Return directions (G, G') with unit scatter, without those that have none, e.g. the sum of probabilities."""
    scale = np.sqrt(np.maximum(np.diag(scatter), 1e-12))
    values, vectors = np.linalg.eigh(scatter / np.outer(scale, scale))
    real = values > 1e-3 * values[-1]
    directions: Matrix = vectors[:, real] / np.sqrt(values[real]) / scale[:, None]
    return directions


def _root(covariances: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(covariances)
    root: Matrix = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    return root


def _find_overlaps(table: PredictionTable) -> list[tuple[Index, Matrix]]:
    """Return sets of a client that have rows in common, with the root of the correlation of their means."""
    if len(np.unique(table.rows)) == len(table.rows):
        return []
    result = []
    bounds = np.searchsorted(table.sets, np.arange(len(table.counts) + 1))
    for client in np.unique(table.client):
        group_sets = np.flatnonzero(table.client == client)
        part = slice(bounds[group_sets[0]], bounds[group_sets[-1] + 1])
        distinct, row = np.unique(table.rows[part], return_inverse=True)
        contains = np.zeros((len(distinct), len(group_sets)), np.float32)
        contains[row, table.sets[part] - group_sets[0]] = 1
        common = (contains.T @ contains).astype(np.float64)
        size = np.sqrt(np.maximum(np.diag(common), 1))
        correlation = common / np.outer(size, size)
        np.fill_diagonal(correlation, 1.0)
        result.append((group_sets, _root(correlation)))
    return result


@dataclass(frozen=True)
class _WorstGroup:
    """The group that fits worst."""

    p_value: float
    worst_set: int
    one_set: bool  # whether the group would pass the test without that set
    why: str


@dataclass(frozen=True, eq=False)
class _LeaveOneOut:
    """Groups of sets, each compared with mu as fitted to all other groups."""

    sets: _Sets
    active: Index  # (s,): the sets that are compared, ordered by group
    group: Index  # (s,): the group of each set, from 0
    starts: Index  # (C,): position of the first set of each group
    inverses: Matrix  # (C, K, K): of the normal equations of all other groups
    testable: NDArray[np.bool_]  # (s,): whether the other groups determine the expectation of the set

    @property
    def groups(self) -> int:
        return len(self.starts)

    def first_sets(self) -> list[int]:
        return [int(place) for place in self.active[self.starts]]

    def residuals(self, means: Matrix) -> Matrix:
        """Return the deviations of the sets from their expectation (s, G)."""
        found, priors = means[self.active], self.sets.priors[self.active]
        weighted = self.sets.counts[self.active][:, None] * priors
        sums = np.add.reduceat(weighted[:, :, None] * found[:, None, :], self.starts)  # (C, K, G)
        mu = self.inverses @ (sums.sum(axis=0) - sums)
        expected = np.einsum("mk,mkg->mg", priors, mu[self.group])
        residuals: Matrix = found - expected
        return residuals

    def squares(self, residuals: Matrix) -> Matrix:
        """Return the squared deviation of each set (s,), times its rows; 0 for a set that cannot be tested."""
        squares: Matrix = self.testable * self.sets.counts[self.active] * np.square(residuals).sum(axis=1)
        return squares

    def test(self, generator: np.random.Generator) -> _WorstGroup:
        """Compare the deviations with random draws under the assumption; return the group that fits worst."""
        draws = int(np.clip(MAX_WORK // len(self.sets.statistics), MIN_DRAWS, DRAWS))
        chance = np.stack([self.squares(self.residuals(self.sets.draw(generator))) for _ in range(draws)])  # (B, s)
        residuals = self.residuals(self.sets.means)
        squares = self.squares(residuals)
        # Uncertain responsibilities make classes look wider than they are. If all sets together deviate by less than
        # the draws, each group is compared with the other groups and not with the draws.
        if squares.sum() < chance.sum(axis=1).mean():
            squares = squares * (chance.sum(axis=1).mean() / squares.sum())
            chance *= (chance.sum(axis=1).mean() / chance.sum(axis=1))[:, None]
        by_group = np.add.reduceat(chance, self.starts, axis=1)  # (B, C)
        middle, spread = by_group.mean(axis=0), by_group.std(axis=0) + 1e-12
        largest = ((by_group - middle) / spread).max(axis=1)  # over groups: one level for all groups jointly

        def p_value(total: float, group: int) -> float:
            return float((1 + (largest >= (total - middle[group]) / spread[group]).sum()) / (1 + draws))

        totals = np.add.reduceat(squares, self.starts)
        worst = int(((totals - middle) / spread).argmax())
        group_sets = np.flatnonzero(self.group == worst)
        worst_set = group_sets[(squares[group_sets] / (chance.mean(axis=0)[group_sets] + 1e-12)).argmax()]
        one_set = len(group_sets) > 1 and p_value(totals[worst] - squares[worst_set], worst) >= SIGNIFICANCE
        weight = self.sets.counts[self.active][group_sets]
        deviations = weight[:, None] * np.square(residuals[group_sets])
        common = np.square(weight @ residuals[group_sets]).sum() / weight.sum() / max(deviations.sum(), 1e-12)
        why = ROWS_DIFFER if common > COMMON_SHARE else MIXES_DIFFER
        return _WorstGroup(p_value(totals[worst], worst), int(self.active[worst_set]), one_set, why)


def _leave_one_out(sets: _Sets, active: Index, group_of: Index) -> _LeaveOneOut | None:
    """Fit mu without each group; None if no group can be left out, because the other sets would not determine mu."""
    groups, starts, number = np.unique(group_of, return_index=True, return_inverse=True)
    if len(groups) < 2:
        return None
    priors = sets.priors[active]
    normal = np.add.reduceat(sets.counts[active][:, None, None] * priors[:, :, None] * priors[:, None, :], starts)
    others = normal.sum(axis=0) - normal  # (C, K, K)
    values = np.linalg.eigvalsh(others)
    testable = values[:, 0] > RANK_TOLERANCE * values[:, -1]
    if not testable.any():
        return None
    others[~testable] = np.eye(others.shape[1])
    return _LeaveOneOut(sets, active, number, starts, np.linalg.inv(others), testable[number])
