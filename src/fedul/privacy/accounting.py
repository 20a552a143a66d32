"""Accounting of differential privacy: mechanisms, the epsilon of their composition, and the noise for a target.

Neighbouring data differ in one row (or one client) that is added or removed. Where the numbers of rows are public, this
is the same as a row that is replaced with one that contributes nothing.

Epsilon is computed by `dp-accounting` from privacy loss distributions, whose discretisation ("connect the dots",
Doroshenko et al., PoPETs 2022) only ever rounds towards a larger epsilon. Renyi accounting, its alternative, gives an
epsilon that is 6 to 12 % larger for the mechanisms here, so it is not used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedul.errors import InputError

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

SMALLEST_NOISE = 0.05
"""Noise of a Gaussian mechanism below which epsilon is given as infinite: one repetition costs above 200."""
INTERVALS = (1e-3, 5e-4, 2e-4, 1e-4)
"""Distances of the discrete privacy losses; the error of epsilon grows with their square and with the compositions."""
SQUARED_ERROR = 1e-3
"""Largest product of compositions and squared distance, down to the smallest distance."""
LOW_NOISE = 0.3
"""Noise below which losses are so large that their distances grow with them."""
LARGEST_NOISE = 1e6
"""Noise at which the search for a target ends."""
PRECISION = 1e-4
"""Relative precision of a noise that is searched for."""


@dataclass(frozen=True)
class Gaussian:
    """Gaussian mechanism, of all rows or of a random sample of them, repeated.

    Parameters
    ----------
    noise : float
        Standard deviation, as a multiple of the largest L2 norm that one row contributes.
    rate : float, default=1.0
        Probability that a row takes part in one repetition, independently of all others (Poisson sampling).
    count : int, default=1
        Repetitions.
    """

    noise: float
    rate: float = 1.0
    count: int = 1

    def event(self) -> DpEvent:
        """Return the mechanism as `dp-accounting` describes it."""
        from dp_accounting import dp_event

        one: DpEvent = dp_event.GaussianDpEvent(self.noise)
        if self.rate < 1:
            one = dp_event.PoissonSampledDpEvent(self.rate, one)
        return dp_event.SelfComposedDpEvent(one, self.count)

    @property
    def is_void(self) -> bool:
        """Whether nothing is released."""
        return self.count == 0 or self.rate == 0

    @property
    def is_unbounded(self) -> bool:
        """Whether there is so little noise that no finite epsilon is given."""
        return self.noise < SMALLEST_NOISE

    def losses(self, interval: float) -> Any:
        """Return the privacy loss distribution of one repetition."""
        from dp_accounting.pld import privacy_loss_distribution

        return privacy_loss_distribution.from_gaussian_mechanism(
            self.noise, sampling_prob=self.rate, value_discretization_interval=interval
        )


@dataclass(frozen=True)
class Laplace:
    """Laplace mechanism, repeated.

    Parameters
    ----------
    noise : float
        Scale of the noise, as a multiple of the largest L1 norm that one row contributes.
    count : int, default=1
        Repetitions.
    """

    noise: float
    count: int = 1

    def event(self) -> DpEvent:
        """Return the mechanism as `dp-accounting` describes it."""
        from dp_accounting import dp_event

        return dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(self.noise), self.count)

    @property
    def is_void(self) -> bool:
        """Whether nothing is released."""
        return self.count == 0

    @property
    def is_unbounded(self) -> bool:
        """Whether there is so little noise that no finite epsilon is given."""
        return self.noise < SMALLEST_NOISE / 10

    def losses(self, interval: float) -> Any:
        """Return the privacy loss distribution of one repetition."""
        from dp_accounting.pld import privacy_loss_distribution

        return privacy_loss_distribution.from_laplace_mechanism(self.noise, value_discretization_interval=interval)


Mechanism = Gaussian | Laplace


def epsilon_of(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Return the epsilon of all mechanisms together, each of which may depend on the results of the others.

    Parameters
    ----------
    mechanisms : iterable of Gaussian or Laplace
        What was released.
    delta : float
        Delta, between 0 and 1.

    Returns
    -------
    float
        An upper bound; infinite if a mechanism has next to no noise, 0 without mechanisms.

    Examples
    --------
    >>> round(epsilon_of([Gaussian(noise=1.1, rate=0.01, count=1000)], delta=1e-5), 2)
    1.52
    >>> round(epsilon_of([Laplace(noise=2.0)], delta=1e-12), 3)  # scale 2 is epsilon 1 / 2 without a delta
    0.5
    >>> epsilon_of([Gaussian(noise=0.0)], delta=1e-5)
    inf
    """
    parts = _collect(mechanisms)
    return _epsilon(parts, delta) if parts else 0.0


def noise_for(epsilon: float, delta: float, mechanisms: Callable[[float], Iterable[Mechanism]]) -> float:
    """Return the smallest noise with which mechanisms stay within epsilon, by a search in a bracket.

    Parameters
    ----------
    epsilon, delta : float
        The target.
    mechanisms : callable
        Function from the noise to all mechanisms, also those whose noise is given.

    Returns
    -------
    float
        The noise. Epsilon at this noise is at most the target, and less than a tenth of a percent below it.

    Raises
    ------
    InputError
        If no noise is enough.

    Examples
    --------
    >>> noise = noise_for(1.0, 1e-5, lambda noise: [Gaussian(noise)])
    >>> round(noise, 2), epsilon_of([Gaussian(noise)], 1e-5) <= 1
    (3.73, True)
    """

    def excess(noise: float) -> float:
        spent = epsilon_of(mechanisms(noise), delta)
        return math.log(spent / epsilon) if 0 < spent < math.inf else math.copysign(math.inf, spent - epsilon)

    low, high = 1.0, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
        if high > LARGEST_NOISE:
            raise InputError(
                f"epsilon {epsilon:g} at delta {delta:g}: no noise is enough for it; allow a larger epsilon."
            )
    while low == high or excess(low) <= 0:
        low, high = low / 2, low
        if low < SMALLEST_NOISE / 2:
            return high
    while high > low * (1 + PRECISION):
        middle = _between(low, high, excess(low), excess(high))
        low, high = (low, middle) if excess(middle) <= 0 else (middle, high)
    return high


def _between(low: float, high: float, above: float, below: float) -> float:
    """Return a noise inside the bracket: on the chord of log epsilon over log noise, but not at an end."""
    width = math.log(high / low)
    share = above / (above - below) if above < math.inf and below > -math.inf else 0.5
    margin = min(PRECISION / 2 / width, 0.25)  # so that one end is soon next to the root, on the safe side
    return low * math.exp(width * min(max(share + margin, margin), 1 - margin))


Composition = tuple[tuple[Mechanism, int], ...]
"""Single mechanisms and how often they are repeated, in a fixed order."""


def _collect(mechanisms: Iterable[Mechanism]) -> Composition:
    """Return equal mechanisms as one; Gaussian ones of all rows are one with less noise, exactly."""
    counts: Counter[Mechanism] = Counter()
    precision = 0.0
    for each in mechanisms:
        if each.is_void:
            continue
        if isinstance(each, Gaussian) and each.rate == 1 and not each.is_unbounded:
            precision += each.count / each.noise**2
        else:
            counts[replace(each, count=1)] += each.count
    if precision:
        counts[Gaussian(1 / math.sqrt(precision))] += 1
    return tuple(sorted(counts.items(), key=repr))


@lru_cache(maxsize=4096)
def _epsilon(parts: Composition, delta: float) -> float:
    if any(mechanism.is_unbounded for mechanism, _ in parts):
        return math.inf
    repetitions = sum(count for _, count in parts)
    interval = next((d for d in INTERVALS if repetitions * d**2 <= SQUARED_ERROR), INTERVALS[-1])
    interval *= max([1.0, *((LOW_NOISE / mechanism.noise) ** 2 for mechanism, _ in parts)])
    composed, *others = [_repeated(mechanism, count, interval) for mechanism, count in parts]
    for other in others:
        composed = composed.compose(other)
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=16)
def _repeated(mechanism: Mechanism, count: int, interval: float) -> Any:
    return _single(mechanism, interval).self_compose(count)


@lru_cache(maxsize=16)
def _single(mechanism: Mechanism, interval: float) -> Any:
    require_accounting()
    return mechanism.losses(interval)


def require_accounting() -> None:
    """Raise what to install if the package that computes epsilon is missing."""
    if find_spec("dp_accounting") is None:
        raise InputError("differential privacy needs the extra privacy; install it: pip install 'fedul[privacy]'.")
