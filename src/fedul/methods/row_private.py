"""Methods with differential privacy of rows: the loss must be a sum over rows.

DP-SGD limits what one row adds to a sum of gradients. So a loss must consist of one term per row, which depends on this
row, the weights and constants of the client: class priors, numbers of rows and sets, and what follows from them. Terms
that use several rows at once, such as the mean prediction over a set, are left out, or the method is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.methods.base import Method

POSSIBLE = "use fedul-combined, fedul, soft-labels, soft-em, rcm, llpfc, easyllp or supervised"


def make_row_private(method: Method) -> tuple[Method, Sequence[str]]:
    """Return the form of a method whose loss is a sum over rows, and what it leaves out, in sentences.

    Parameters
    ----------
    method : Method
        The method. Its own class must define `Method.row_private`: a subclass may have another loss than its base.

    Raises
    ------
    InputError
        If it cannot be private, or does not define it.
    """
    if "row_private" not in vars(type(method)):
        raise row_privacy_refused(type(method).__name__, "it does not define row_private, so its loss may mix rows")
    return method.row_private()


def row_privacy_refused(name: str, reason: str) -> InputError:
    """Return the error for a method that cannot be private, with the reason: a clause without a full stop."""
    return InputError(
        f"method {name}: {reason}; with private rows (--dp-epsilon, --dp-noise) a loss is a sum over rows: {POSSIBLE}."
    )
