"""Prior-adjusted standardisation: the rows of each site in units of what the site would have at the test prior.

Sites may measure a feature on different scales. Plain z-scores per site remove this, but also the part of the class
information that is in the site's class mix. Here the mean and the second moment of a feature are regressed on the class
priors of the site's sets, predicted for the test prior pi, and the rows become ``(x - location) / deviation``.

Both moments of a mixture are linear in its class shares, so the prediction is a weighted sum over sets, with the same
weights w for every feature and both moments: sum(w) = 1 and Pi^T w near pi. The weights minimise

    sum_m w_m^2 / n_m + |Pi^T w - pi|^2,

the expected squared error of a predicted mean if the means of the classes vary by one within-set standard deviation.
Where the priors of a site have little contrast, this shrinks the weights towards n_m / n, the site's plain moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedul.core.priors import Matrix
from fedul.core.unlabeled_sets import Rows, UnlabeledSets
from fedul.errors import InputError, list_names

Columns = Mapping[int, int | None]
"""Places of the inputs to adjust, each with the place of its indicator of missing values, if it has one."""

LARGEST_RATIO = 10.0
"""The variance at the test prior is at most this many times the plain variance of a site, and at least its inverse."""

CONSTANT = 1e-10
"""A feature whose variance is below this share of its second moment is constant, and is not rescaled."""

LARGEST_ERROR = 0.1
"""Expected squared error, in within-set variances, up to which the sets of a client determine its adjustment."""


@dataclass(frozen=True, eq=False)
class SiteAdjustment:
    """Location and deviation of every input at one site, in encoded units: 0 and 1 where an input is not adjusted.

    Parameters
    ----------
    location, deviation : ndarray of shape (D,)
        Mean and standard deviation that the site would have at the test prior.
    """

    location: Matrix
    deviation: Matrix

    def apply(self, inputs: Tensor, columns: Columns) -> Tensor:
        """Return inputs (n, D) in units of the site; values that an indicator marks as missing become 0, the mean."""
        location, deviation = (torch.from_numpy(each) for each in (self.location, self.deviation))
        adjusted = ((inputs.double() - location) / deviation).to(inputs.dtype)
        for place, indicator in columns.items():
            if indicator is not None:
                adjusted[inputs[:, indicator] > 0, place] = 0
        return adjusted


@dataclass(frozen=True, eq=False)
class SiteAdjustments:
    """The adjustments of all sites of a federation, which new rows need as well.

    Parameters
    ----------
    sites : mapping of str to SiteAdjustment
        By client name.
    columns : mapping of int to int or None
        The inputs that are adjusted, each with its indicator of missing values.
    client_column : str or None
        Column of a table with the client of a row.
    """

    sites: Mapping[str, SiteAdjustment]
    columns: Columns
    client_column: str | None = None

    @cached_property
    def mean(self) -> SiteAdjustment:
        """Mean location and deviation over sites, for rows of an unknown site."""
        locations, deviations = self.stack()
        return SiteAdjustment(locations.mean(axis=0), deviations.mean(axis=0))

    def stack(self) -> tuple[Matrix, Matrix]:
        """Return the locations and the deviations of all sites (C, D), in their order."""
        sites = self.sites.values()
        return np.stack([each.location for each in sites]), np.stack([each.deviation for each in sites])

    def of(self, client: str | None) -> SiteAdjustment:
        """Return the adjustment of a client, of None the mean; InputError for an unknown name."""
        if client is None:
            return self.mean
        if client not in self.sites:
            raise InputError(f"site '{client}': the classifier knows {list_names(self.sites)}; name one.")
        return self.sites[client]

    def apply(self, inputs: Tensor, clients: Sequence[str | None]) -> Tensor:
        """Return inputs (n, D) in units of the client of each row; rows of unknown clients get the mean adjustment."""
        words = np.array([client if client in self.sites else "" for client in clients], dtype=object)
        adjusted = torch.empty_like(inputs)
        for name in dict.fromkeys(words):
            rows = torch.from_numpy(np.flatnonzero(words == name))
            adjusted[rows] = self.of(name or None).apply(inputs[rows], self.columns)
        return adjusted


@dataclass(frozen=True, eq=False)
class SetMoments:
    """Moments of inputs in each set of a client; missing values are left out.

    Parameters
    ----------
    counts, means, variances : ndarray of shape (M, J)
        Number of values, their mean, and their variance (divided by the number), 0 where a set has no value.
    """

    counts: Matrix
    means: Matrix
    variances: Matrix

    @classmethod
    def of(cls, client: UnlabeledSets, columns: Columns) -> SetMoments:
        """Compute the moments of all rows of the sets, held-out ones included: the priors speak of all of them."""
        index = torch.cat([client.train.index, client.held_out.index])
        sets = torch.cat([client.train.sets, client.held_out.sets]).numpy()
        count = len(client.priors)
        moments = np.zeros((3, count, len(columns)))
        for j, (place, indicator) in enumerate(columns.items()):  # one column at a time: tables may be large
            values, own = client.inputs[index, place].double().cpu().numpy(), sets
            if indicator is not None:
                present = (client.inputs[index, indicator] <= 0).cpu().numpy()
                values, own = values[present], sets[present]
            n = np.bincount(own, minlength=count)
            means = np.bincount(own, values, minlength=count) / np.maximum(n, 1)
            squares = np.bincount(own, (values - means[own]) ** 2, minlength=count)
            moments[:, :, j] = n, means, squares / np.maximum(n, 1)
        return cls(*moments)


@dataclass(frozen=True, eq=False)
class SetWeights:
    """Weights of the sets of a client whose mixture has nearly the class mix pi.

    Parameters
    ----------
    weights : ndarray of shape (M,)
        They sum to 1 and may be negative.
    expected_error : float
        Expected squared error of a predicted mean, in squared within-set standard deviations.
    """

    weights: Matrix
    expected_error: float = field(default=0.0)

    @classmethod
    def of(cls, priors: Matrix, counts: Matrix, prior: ArrayLike) -> SetWeights:
        """Compute the weights for a class mix `prior` (K,) from priors (M, K) and sizes (M,) of sets.

        Examples
        --------
        >>> priors = np.array([[0.9, 0.1], [0.2, 0.8]])
        >>> SetWeights.of(priors, np.array([1e6, 1e6]), [0.55, 0.45]).weights.round(3)
        array([0.5, 0.5])
        """
        shares = counts / counts.sum()
        mix = shares @ priors  # (K,)
        away = priors - mix  # (M, K)
        ridge = (away.T * counts) @ away + np.eye(priors.shape[1])
        weights = shares + counts * (away @ np.linalg.solve(ridge, np.asarray(prior) - mix))
        used = counts > 0
        gap = weights @ priors - prior
        return cls(weights, float((weights[used] ** 2 / counts[used]).sum() + gap @ gap))


def fit_adjustment(client: UnlabeledSets, test_prior: Matrix, columns: Columns) -> SiteAdjustment:
    """Return the location and deviation that the inputs of a client would have at the test prior.

    Parameters
    ----------
    client : UnlabeledSets
        Rows in sets, with their class priors. Nothing else is used, so this is done at the site.
    test_prior : ndarray of shape (K,)
        The class mix to predict for.
    columns : mapping of int to int or None
        The inputs to adjust, each with its indicator of missing values.
    """
    moments = SetMoments.of(client, columns)
    width = client.inputs.shape[1]
    location, deviation = np.zeros(width), np.ones(width)
    for j, place in enumerate(columns):
        counts, means, variances = (each[:, j] for each in (moments.counts, moments.means, moments.variances))
        if not counts.any():
            continue
        weights = SetWeights.of(client.priors, counts, test_prior).weights
        location[place] = weights @ means
        shares = counts / counts.sum()
        usual = shares @ (variances + (means - shares @ means) ** 2)
        predicted = weights @ (variances + (means - location[place]) ** 2)
        if usual > CONSTANT * (usual + (shares @ means) ** 2):
            deviation[place] = np.sqrt(np.clip(predicted, usual / LARGEST_RATIO, usual * LARGEST_RATIO))
    return SiteAdjustment(location, deviation)


def is_determined(client: UnlabeledSets, test_prior: Matrix) -> bool:
    """Return whether the sets of a client determine what its inputs would be at the test prior."""
    sets = torch.cat([client.train.sets, client.held_out.sets])
    counts = np.bincount(sets, minlength=len(client.priors)).astype(np.float64)
    return SetWeights.of(client.priors, counts, test_prior).expected_error <= LARGEST_ERROR


def with_adjusted_rows(clients: Sequence[UnlabeledSets], adjustments: SiteAdjustments) -> list[UnlabeledSets]:
    """Return the clients with their rows in units of their sites. All share one new tensor of inputs."""
    used = [np.unique(np.concatenate([c.train.index.numpy(), c.held_out.index.numpy()])) for c in clients]
    starts = np.cumsum([0, *(len(index) for index in used)])
    first = clients[0].inputs
    inputs = torch.empty(int(starts[-1]), *first.shape[1:], dtype=first.dtype)
    adjusted = []
    for client, index, start in zip(clients, used, starts, strict=False):
        rows = client.inputs[torch.from_numpy(index)]
        inputs[start : start + len(index)] = adjustments.of(client.name).apply(rows, adjustments.columns)
        train, held_out = (
            Rows(torch.from_numpy(start + np.searchsorted(index, part.index.numpy())), part.sets)
            for part in (client.train, client.held_out)
        )
        adjusted.append(replace(client, inputs=inputs, train=train, held_out=held_out))
    return adjusted
