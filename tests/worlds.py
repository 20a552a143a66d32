"""Finite worlds: a few inputs with known p(x|y), from which all else follows by Bayes' rule and summation.

Nothing here uses the transition Q, so what is checked against a world is checked against probability theory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from scipy.linalg import block_diag, null_space
from scipy.optimize import minimize
from torch import Tensor

from fedul.core import Matrix

repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=25)
"""Settings of property tests: the same random instances every time."""

seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True, eq=False)
class Client:
    """Class priors and sizes of the sets of a client, from which Q_c is computed."""

    priors: Matrix  # (M, K)
    set_priors: Matrix  # (M,)


@dataclass(frozen=True, eq=False)
class World:
    """X inputs, K classes, and clients whose sets are mixtures of the classes."""

    likelihood: Matrix  # (X, K): p(x | y); columns sum to one
    test_prior: Matrix  # (K,)
    clients: Sequence[Client]

    @property
    def posterior(self) -> Matrix:
        """eta (X, K): p(y | x) where classes are as common as the test prior says."""
        joint = self.likelihood * self.test_prior
        return joint / joint.sum(axis=1, keepdims=True)

    def joint(self, client: Client) -> Matrix:
        """p_c(x, m) (X, M): the chance to draw set m and then x from its mixture of classes."""
        return (self.likelihood @ client.priors.T) * client.set_priors

    def set_posterior(self, client: Client) -> Matrix:
        """p_c(m | x) (X, M)."""
        joint = self.joint(client)
        return joint / joint.sum(axis=1, keepdims=True)

    def expected_loss(self, loss: Callable[[Client, Tensor], Tensor], logits: Tensor) -> Tensor:
        """The sum over clients of E[loss] under p_c(x, m), for losses (X, M) from logits (X, K)."""
        means = [(torch.from_numpy(self.joint(c)) * loss(c, logits)).sum() for c in self.clients]
        return torch.stack(means).sum()


def random_priors(
    generator: np.random.Generator, sets: int, classes: int, *, zeros: float = 0.0, purity: float = 0.0
) -> Matrix:
    """Random rows on the simplex; some entries are zero, and set m has at least `purity` of class m mod K."""
    present = generator.uniform(size=(sets, classes)) >= zeros
    present[np.arange(sets), generator.integers(classes, size=sets)] = True  # no row is left empty
    shares = present * (generator.gamma(1.0, size=(sets, classes)) + 0.05)
    shares *= (1 - purity) / shares.sum(axis=1, keepdims=True)
    shares[np.arange(sets), np.arange(sets) % classes] += purity
    return shares


def random_shares(generator: np.random.Generator, count: int) -> Matrix:
    """A random positive vector that sums to one, no entry of it vanishing."""
    shares = generator.uniform(0.2, 1.0, count)
    return shares / shares.sum()


def random_world(
    generator: np.random.Generator,
    classes: int,
    sets: Sequence[int],
    *,
    inputs: int = 4,
    zeros: float = 0.0,
    purity: float = 0.0,
) -> World:
    """A world with one client for each number of sets."""
    likelihood = generator.gamma(1.0, size=(inputs, classes)) + 1e-2
    clients = [
        Client(random_priors(generator, m, classes, zeros=zeros, purity=purity), random_shares(generator, m))
        for m in sets
    ]
    return World(likelihood / likelihood.sum(axis=0), random_shares(generator, classes), clients)


@st.composite
def worlds(draw: st.DrawFn, *, zeros: bool = True) -> World:
    """Any world: fewer or more sets than classes, different at each client, with or without zeros."""
    return random_world(
        np.random.default_rng(draw(seeds)),
        draw(st.integers(2, 6)),
        draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)),
        zeros=draw(st.sampled_from([0.0, 0.4])) if zeros else 0.0,
    )


def confusable_directions(federation: Sequence[Matrix], densities: Matrix) -> Matrix:
    """A basis (K, d) of all w with Pi_c w proportional to Pi_c u at every client.

    These are u itself (how dense each class is at an input) and the directions that no client can see.
    """
    scales = block_diag(*[(priors @ densities)[:, None] for priors in federation])
    return null_space(np.hstack([np.vstack(federation), -scales]), rcond=1e-9)[: len(densities)]


def twin_of(posterior: Matrix, federation: Sequence[Matrix], test_prior: Matrix) -> Matrix:
    """Another posterior under which every client's sets are as likely as under this one."""
    densities = posterior / test_prior
    directions = confusable_directions(federation, densities)
    unit = densities / np.linalg.norm(densities)
    beside = directions - np.outer(unit, unit @ directions)
    unseen = beside[:, np.argmax(np.linalg.norm(beside, axis=0))]
    twin = test_prior * (densities + 0.5 * unseen / np.abs(unseen / densities).max())
    return twin / twin.sum()


def least(expected: Callable[[Tensor], Tensor], start: Matrix, gtol: float) -> Tensor:
    """The logits (X, K), one free vector an input, that minimise an expected loss; float64, by Newton's steps."""

    def value(flat: Tensor) -> Tensor:
        return expected(flat.reshape(start.shape))

    def value_and_slope(flat: Matrix) -> tuple[float, Matrix]:
        logits = torch.from_numpy(flat).requires_grad_()
        result = value(logits)
        return result.item(), torch.autograd.grad(result, logits)[0].numpy()

    def curvature(flat: Matrix) -> Matrix:
        return torch.autograd.functional.hessian(value, torch.from_numpy(flat)).numpy()

    options = {"gtol": gtol, "maxiter": 200}
    found = minimize(value_and_slope, start.ravel(), jac=True, hess=curvature, method="trust-exact", options=options)
    return torch.from_numpy(found.x.reshape(start.shape))
