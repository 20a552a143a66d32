"""Whether all sets of all clients share the class-conditional distributions, as FedUL assumes.

If they do, the mean of any figure g of a row over set m is Pi_m mu, with one mu (K, G) for all clients. So mu is fitted
to all clients but one, and what the sets of that one are off by is compared with what chance alone would do, drawn
from the fitted mixtures. A model may learn a strange client's rows as if they were normal; therefore g is not only what
the classifier says of a row but also how the row looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul.evaluation.judged import Judged
from fedul.evaluation.responsibilities import Stacked, responsibilities, stacked, temperature
from fedul.inputs import Index
from fedul.priors import RANK_TOLERANCE, Matrix

LEVEL = 0.05
ALIKE = 0.2
"""Share of a client's misfit that its sets have in common: with inverted images 0.3 to 0.8, else under 0.1."""

DRAWS = 300
FEW_DRAWS = 100
WORK = 4_000_000
"""Rows times draws: with very many rows there are fewer draws, but never less than FEW_DRAWS."""

LARGE = 250
"""Rows a set from which on its mean is normal, and need not be drawn row by row."""

MOST = 10
"""Misfits that are named, at most."""


@dataclass(frozen=True)
class Misfit:
    """A client, or one of its sets, that does not fit the others."""

    client: str
    set: str | None  # None: the client as a whole
    p_value: float
    why: str

    def plain(self) -> dict[str, Any]:
        return {"client": self.client, "set": self.set, "p_value": self.p_value, "why": self.why}


@dataclass(frozen=True)
class AssumptionTest:
    """The p-value of "all share the class-conditional distributions"; None, and the reason, if it cannot be tested."""

    p_value: float | None
    misfits: tuple[Misfit, ...] = ()
    reason: str | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        misfits = [misfit.plain() for misfit in self.misfits]
        return {"p_value": self.p_value, "misfits": misfits, "reason": self.reason}


def check_assumption(judged: Judged, *, seed: int = 0) -> AssumptionTest:
    """Tests the assumption, and names who breaks it: the worst first, and then whoever does not fit the rest.

    P-values are for all clients together: if all is well, one in twenty federations has a client named.
    """
    table, priors = stacked(judged)
    sets, generator = _summaries(table, priors), np.random.default_rng(seed)
    active = np.flatnonzero(table.counts > 0)
    alone = len(np.unique(table.client[active])) == 1
    group_of = np.arange(len(priors)) if alone else table.client  # the sets of a single client are compared
    names = [(client.name, name) for client in judged.clients for name in client.set_names]
    found, overall = list[Misfit](), None
    while len(found) < MOST and (fit := _left_out(sets, active, group_of[active])) is not None:
        verdict = fit.judged(generator)
        overall = verdict.p_value if overall is None else overall
        if verdict.p_value >= LEVEL:
            break
        if fit.groups == 2 and not alone:
            why = "the only two clients that are left do not fit together; either may be the wrong one"
            found += [Misfit(names[place][0], None, verdict.p_value, why) for place in fit.firsts()]
            break
        client, set_name = names[verdict.place]
        one = alone or verdict.one_set
        found.append(Misfit(client, set_name if one else None, verdict.p_value, ONE_SET if one else verdict.why))
        active = active[active != verdict.place] if one else active[group_of[active] != group_of[verdict.place]]
    if overall is None:
        return AssumptionTest(None, reason=TOO_FEW_SETS if alone else TOO_ALIKE)
    return AssumptionTest(overall, tuple(found))


ONE_SET = "the rows of this set are not the mixture of classes that its priors state"
ROWS_DIFFER = "its rows look different from other clients' rows of the same classes: all its sets are off alike"
MIXES_DIFFER = "its sets are not the mixtures that its priors state: they are off in different directions"
TOO_FEW_SETS = "one client with no more sets than classes leaves nothing to compare with; give more sets or clients"
TOO_ALIKE = "without any one client, the others' sets do not tell how each class looks; give more different sets"


@dataclass(frozen=True, eq=False)
class _Sets:
    """Of every set: its priors, rows, and mean of g; and what the means of g might be under the assumption."""

    priors: Matrix  # (S, K)
    counts: Matrix  # (S,)
    exact: NDArray[np.bool_]  # (S,)
    means: Matrix  # (S, G), in units in which the scatter of rows within a class is 1 in all directions
    figures: Matrix  # (n, G): g of all rows
    chances: Matrix  # (K n,): k plus the cumulated chance that a row of class k is row i, so that one search draws it
    centres: Matrix  # (K, G)
    roots: Matrix  # (K, G, G): square roots of the scatter within each class
    shared: list[tuple[Index, Matrix]]  # sets of a client that share rows, and the root of their correlation

    def drawn(self, generator: np.random.Generator) -> Matrix:
        """Means (S, G) less their expectation, which residuals do not depend on."""
        whole = np.round(self.counts[:, None] * self.priors).astype(np.int64)
        chance = generator.multinomial(self.counts.astype(np.int64), self.priors)
        counts = np.where(self.exact[:, None], whole, chance)  # (S, K)
        size = np.maximum(self.counts, 1)[:, None]
        large = self.counts.sum() > LARGE * len(self.counts)
        noise = self._by_class(counts, generator) if large else self._by_row(counts, generator)
        noise = (noise + (counts - self.counts[:, None] * self.priors) @ self.centres) / np.sqrt(size)
        for own, root in self.shared:
            noise[own] = root @ noise[own]
        return noise / np.sqrt(size)

    def _by_row(self, counts: Index, generator: np.random.Generator) -> Matrix:
        """Sums (S, G) over rows that are drawn for each class, by their responsibilities."""
        classes = np.tile(np.arange(counts.shape[1]), len(counts)).repeat(counts.ravel())
        place = np.searchsorted(self.chances, classes + generator.uniform(size=len(classes)))
        figures = self.figures[np.minimum(place, len(self.chances) - 1) % len(self.figures)] - self.centres[classes]
        total, rows = np.zeros_like(self.means), counts.sum(axis=1)
        there = rows > 0
        total[there] = np.add.reduceat(figures, (np.cumsum(rows) - rows)[there])
        return total

    def _by_class(self, counts: Index, generator: np.random.Generator) -> Matrix:
        noise = generator.standard_normal((*counts.shape, self.means.shape[1]))
        total: Matrix = np.einsum("mk,kgh,mkh->mg", np.sqrt(counts), self.roots, noise, optimize=True)
        return total


def _summaries(table: Stacked, priors: Matrix) -> _Sets:
    shares = responsibilities(table, priors, temperature(table, priors).best)
    figures = np.hstack([np.exp(table.log_probabilities), table.features])  # (n, G)
    figures -= figures.mean(axis=0)
    weights = shares / np.maximum(shares.sum(axis=0), 1e-12)  # (n, K)
    centres = weights.T @ figures  # (K, G)
    scatters = np.stack([(figures * weights[:, [k]]).T @ figures for k in range(table.classes)])  # (K, G, G)
    scatters -= centres[:, :, None] * centres[:, None, :]
    whiten = _whitening(np.einsum("k,kgh->gh", shares.mean(axis=0), scatters))
    figures = figures @ whiten
    cumulated = np.cumsum(weights, axis=0)
    return _Sets(
        priors=priors,
        counts=table.counts,
        exact=table.exact,
        means=table.over_sets(figures) / np.maximum(table.counts, 1)[:, None],
        figures=figures,
        chances=(cumulated / np.maximum(cumulated[-1], 1e-12) + np.arange(table.classes)).T.ravel(),
        centres=centres @ whiten,
        roots=_root(whiten.T @ scatters @ whiten),
        shared=_shared(table),
    )


def _whitening(scatter: Matrix) -> Matrix:
    """Directions (G, G') in which the scatter is one; those without any are left out, e.g. that of the sum to one."""
    scale = np.sqrt(np.maximum(np.diag(scatter), 1e-12))
    values, vectors = np.linalg.eigh(scatter / np.outer(scale, scale))
    real = values > 1e-3 * values[-1]
    directions: Matrix = vectors[:, real] / np.sqrt(values[real]) / scale[:, None]
    return directions


def _root(covariances: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(covariances)
    root: Matrix = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    return root


def _shared(table: Stacked) -> list[tuple[Index, Matrix]]:
    """Sets of one client that have rows in common are off together."""
    if len(np.unique(table.rows)) == len(table.rows):
        return []
    result = []
    bounds = np.searchsorted(table.sets, np.arange(len(table.counts) + 1))
    for client in np.unique(table.client):
        own = np.flatnonzero(table.client == client)
        part = slice(bounds[own[0]], bounds[own[-1] + 1])
        members, row = np.unique(table.rows[part], return_inverse=True)
        there = np.zeros((len(members), len(own)), np.float32)
        there[row, table.sets[part] - own[0]] = 1
        common = (there.T @ there).astype(np.float64)
        size = np.sqrt(np.maximum(np.diag(common), 1))
        correlation = common / np.outer(size, size)
        np.fill_diagonal(correlation, 1.0)
        result.append((own, _root(correlation)))
    return result


@dataclass(frozen=True)
class _Verdict:
    """On the group that fits worst."""

    p_value: float
    place: int  # its worst set
    one_set: bool  # without that set the group would pass
    why: str


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """Groups of sets, each compared with mu as fitted to all the others."""

    sets: _Sets
    active: Index  # (s,): the sets in question, ordered by group
    number: Index  # (s,): each one's group, from 0
    starts: Index  # (C,): where a group begins
    inverses: Matrix  # (C, K, K): of the normal equations of all other groups
    able: NDArray[np.bool_]  # (s,): whether the others determine what to expect of the set's group

    @property
    def groups(self) -> int:
        return len(self.starts)

    def firsts(self) -> list[int]:
        return [int(place) for place in self.active[self.starts]]

    def residuals(self, means: Matrix) -> Matrix:
        """What the sets are off by (s, G)."""
        own, priors = means[self.active], self.sets.priors[self.active]
        weighted = self.sets.counts[self.active][:, None] * priors
        sums = np.add.reduceat(weighted[:, :, None] * own[:, None, :], self.starts)  # (C, K, G)
        mu = self.inverses @ (sums.sum(axis=0) - sums)
        expected = np.einsum("mk,mkg->mg", priors, mu[self.number])
        off: Matrix = own - expected
        return off

    def squares(self, residuals: Matrix) -> Matrix:
        squares: Matrix = self.able * self.sets.counts[self.active] * np.square(residuals).sum(axis=1)
        return squares

    def judged(self, generator: np.random.Generator) -> _Verdict:
        draws = int(np.clip(WORK // len(self.sets.figures), FEW_DRAWS, DRAWS))
        chance = np.stack([self.squares(self.residuals(self.sets.drawn(generator))) for _ in range(draws)])  # (B, s)
        residuals = self.residuals(self.sets.means)
        squares = self.squares(residuals)
        # Responsibilities that are not sure make classes look wider than they are. If all sets together are off by less
        # than chance would have it, each group is compared with the others rather than with that.
        if squares.sum() < chance.sum(axis=1).mean():
            squares = squares * (chance.sum(axis=1).mean() / squares.sum())
            chance *= (chance.sum(axis=1).mean() / chance.sum(axis=1))[:, None]
        by_group = np.add.reduceat(chance, self.starts, axis=1)  # (B, C)
        middle, spread = by_group.mean(axis=0), by_group.std(axis=0) + 1e-12
        largest = ((by_group - middle) / spread).max(axis=1)  # over groups: one level for all together

        def p_value(total: float, group: int) -> float:
            return float((1 + (largest >= (total - middle[group]) / spread[group]).sum()) / (1 + draws))

        totals = np.add.reduceat(squares, self.starts)
        worst = int(((totals - middle) / spread).argmax())
        own = np.flatnonzero(self.number == worst)
        place = own[(squares[own] / (chance.mean(axis=0)[own] + 1e-12)).argmax()]
        one_set = len(own) > 1 and p_value(totals[worst] - squares[place], worst) >= LEVEL
        weight = self.sets.counts[self.active][own]
        off = weight[:, None] * np.square(residuals[own])
        alike = np.square(weight @ residuals[own]).sum() / weight.sum() / max(off.sum(), 1e-12)
        why = ROWS_DIFFER if alike > ALIKE else MIXES_DIFFER
        return _Verdict(p_value(totals[worst], worst), int(self.active[place]), one_set, why)


def _left_out(sets: _Sets, active: Index, group_of: Index) -> _LeftOut | None:
    """None where no group can be left out: the others' sets would not determine mu. One that cannot is not judged."""
    groups, starts, number = np.unique(group_of, return_index=True, return_inverse=True)
    if len(groups) < 2:
        return None
    priors = sets.priors[active]
    own = np.add.reduceat(sets.counts[active][:, None, None] * priors[:, :, None] * priors[:, None, :], starts)
    others = own.sum(axis=0) - own  # (C, K, K)
    values = np.linalg.eigvalsh(others)
    able = values[:, 0] > RANK_TOLERANCE * values[:, -1]
    if not able.any():
        return None
    others[~able] = np.eye(others.shape[1])
    return _LeftOut(sets, active, number, starts, np.linalg.inv(others), able[number])
