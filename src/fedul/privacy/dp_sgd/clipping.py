"""Factors that clip gradients of rows to a largest norm."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDING = 100
"""Relative rounding error of a squared norm, in units of the precision. Norms are rounded up by it."""


def clip_factors(squared_norms: Tensor, clip: float) -> Tensor:
    """Return the factor of each row that makes its gradient at most `clip` long.

    A gradient that is not finite gets the factor 0: it contributes nothing.

    Parameters
    ----------
    squared_norms : Tensor
        (n,) squared norms of the gradients.
    clip : float
        Largest norm.

    Returns
    -------
    Tensor
        (n,) factors between 0 and 1.

    Examples
    --------
    >>> clip_factors(torch.tensor([4.0, 0.25, float("nan")], dtype=torch.float64), 1.0)
    tensor([0.5000, 1.0000, 0.0000], dtype=torch.float64)
    """
    safe = squared_norms * (1 + ROUNDING * torch.finfo(squared_norms.dtype).eps)
    factors = (clip / safe.sqrt()).clamp_max(1.0)  # a norm of 0 gives infinity, hence 1
    return torch.where(squared_norms.isfinite(), factors, torch.zeros_like(factors))
