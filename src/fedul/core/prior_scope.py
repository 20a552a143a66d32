"""What class priors speak of: the population that rows were drawn from, or the class shares of exactly these rows.

It is declared where the priors are stated, and never inferred from the numbers: whole percents of a set of 100 rows are
whole numbers of rows, whatever they were counted on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedul.core.priors import Matrix
from fedul.errors import InputError

PRIOR_SCOPES = ("population", "rows", "train")


@dataclass(frozen=True)
class PriorScope:
    """What the class priors of a client speak of.

    Parameters
    ----------
    of : {"population", "rows", "train"}, default="population"
        The population that the rows of a set were drawn from, all rows of the set (training and held-out rows), or its
        training rows.
    rounding : float, default=0.0
        Largest rounding error of a share: half of the last decimal place.
    missing : float, default=0.0
        Share of the rows that the priors speak of which the client does not have, as in cross-fitting.
    noise : float, default=0.0
        Standard deviation of the noise that was added to the number of rows of each class (`--prior-epsilon`), for
        shares that are not rounded; for others it is ``1 + 4 * rounding * rows`` times as large.

    Examples
    --------
    >>> PriorScope("rows").exact, PriorScope("rows", rounding=0.005).exact, PriorScope().exact
    (True, False, False)
    """

    of: str = PRIOR_SCOPES[0]
    rounding: float = 0.0
    missing: float = 0.0
    noise: float = field(default=0.0, repr=False)  # fingerprints of data contain the repr

    def __post_init__(self) -> None:
        if self.of not in PRIOR_SCOPES:
            raise InputError(f"priors-of: '{self.of}' is unknown; use one of {', '.join(PRIOR_SCOPES)}.")
        if not 0 <= self.rounding < 1 or not 0 <= self.missing < 1:
            raise InputError("priors-of: rounding and missing are shares in 0..1 (below 1); correct them.")
        if self.noise < 0:
            raise InputError(f"priors-of: noise is a standard deviation, and {self.noise:g} is negative; correct it.")

    @classmethod
    def of_value(cls, value: PriorScope | str) -> PriorScope:
        """Return a scope as it is, and a name as the scope of exact numbers."""
        return value if isinstance(value, PriorScope) else cls(value)

    @property
    def exact(self) -> bool:
        """Whether the priors are the class shares of exactly the rows they speak of, and the client has all these."""
        return self.of != "population" and not self.rounding and not self.missing and not self.noise

    def relative_variance(self, priors: Matrix, rows: Matrix) -> Matrix:
        """Return the variance of the class shares of a set's rows around its priors, in units of multinomial variance.

        It is 0 for shares counted on exactly these rows, 1 for exact shares of a population, and ``missing`` for a
        random part of the counted rows (hypergeometric variance). Rounding adds to it: an error that is uniform within
        plus and minus ``rounding`` has the variance ``rounding**2 / 3``. So does noise: its variance is
        divided by ``rows**2``.

        Parameters
        ----------
        priors : ndarray of shape (M, K)
            Class priors of the sets.
        rows : ndarray of shape (M,)
            Rows of the sets.

        Returns
        -------
        ndarray of shape (M,)
            One value per set; 0 for a set of one class.

        Examples
        --------
        >>> priors, rows = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([12, 12])
        >>> PriorScope().relative_variance(priors, rows)
        array([1., 0.])
        >>> PriorScope("rows", rounding=0.05).relative_variance(priors, rows).round(3)
        array([0.04, 0.  ])
        """
        sampling = 1.0 if self.of == "population" else self.missing
        multinomial = (priors * (1 - priors)).sum(1) / np.maximum(rows, 1)  # summed over the classes
        uncertain = (priors > 0) & (priors < 1)
        noise = self.noise * (1 + 4 * self.rounding * rows) / np.maximum(rows, 1)
        errors = (self.rounding**2 / 3 + noise**2) * uncertain.sum(1)
        one_class = multinomial == 0
        variance: Matrix = np.where(one_class, 0, sampling + errors / np.where(one_class, 1, multinomial))
        return variance
