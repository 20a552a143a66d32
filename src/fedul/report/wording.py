"""Numbers and lists in words, as the page writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedul.report.markup import SPACE

MINUS = "\u2212"
UNKNOWN = "\u2013"


def percent(share: float | None, digits: int = 0) -> str:
    """A share as a percentage.

    >>> percent(0.934), percent(-0.012, 1), percent(None)
    ('93\\xa0%', '−1.2\\xa0%', '–')
    """
    return UNKNOWN if share is None or not math.isfinite(share) else f"{_signed(100 * share, digits)}{SPACE}%"


def interval(low: float | None, high: float | None, digits: int = 0) -> str:
    """A range of shares: '90 to 95 %'."""
    if low is None or high is None:
        return UNKNOWN
    return f"{_signed(100 * low, digits)} to {percent(high, digits)}"


def digits_for(low: float | None, high: float | None) -> int:
    """Decimals of a percentage that its interval leaves a meaning: one where it is narrower than four points."""
    return 1 if low is not None and high is not None and high - low < 0.04 else 0


def number(value: float | None, digits: int = 4) -> str:
    """A figure to so many significant digits; whole numbers and thousands in full.

    >>> number(2400), number(1.254734), number(None), number(float("inf"))
    ('2,400', '1.255', '–', 'infinite')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "infinite"
    if value == int(value) or abs(value) >= 10**digits:
        return f"{value:,.0f}".replace("-", MINUS)
    return f"{value:.{digits}g}".replace("-", MINUS)


def p_value(value: float) -> str:
    """A p-value.

    >>> p_value(0.4), p_value(0.00001)
    ('p\\xa0=\\xa00.40', 'p\\xa0<\\xa00.001')
    """
    text = "p < 0.001" if value < 0.001 else f"p = {value:.3f}" if value < 0.1 else f"p = {value:.2f}"
    return text.replace(" ", SPACE)


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["flu", "cold", "covid"])
    'flu, cold and covid'
    """
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def counted(count: int, what: str) -> str:
    """A count with its noun.

    >>> counted(1, "client"), counted(2400, "row")
    ('1 client', '2,400 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def more(shown: int, count: int, what: str) -> str | None:
    """What is said where not everything is shown."""
    return None if shown >= count else f"{counted(shown, what)} of {count:,} shown; {count - shown:,} more are not."


def _signed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return text.replace("-", MINUS)
