"""Numbers and lists as text, as the report writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

SPACE = "\u00a0"
"""Keeps a number and its unit on one line."""

MINUS = "\u2212"
UNKNOWN = "\u2013"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share as a percentage.

    Examples
    --------
    >>> percent(0.934), percent(-0.012, 1), percent(None)
    ('93\\xa0%', '−1.2\\xa0%', '–')
    """
    return UNKNOWN if share is None else f"{_points(share, digits)}{SPACE}%"


def interval(ends: tuple[float, float], digits: int = 0) -> str:
    """Return a range of shares: '90 to 95 %'."""
    return f"{_points(ends[0], digits)} to {percent(ends[1], digits)}"


def interval_digits(ends: tuple[float, float]) -> int:
    """Return the decimals that a percentage needs: one if its interval is narrower than four points."""
    return 1 if ends[1] - ends[0] < 0.04 else 0


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with `digits` significant digits; whole numbers and thousands in full.

    Examples
    --------
    >>> number(2400), number(1.254734), number(None), number(float("inf"))
    ('2,400', '1.255', '–', 'infinite')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "infinite"
    whole = value == int(value) or abs(value) >= 10**digits
    return (f"{value:,.0f}" if whole else f"{value:.{digits}g}").replace("-", MINUS)


def size(count: int | None) -> str:
    """Return a number of bytes with its unit.

    Examples
    --------
    >>> size(940), size(12_500), size(3_210_000_000), size(None)
    ('940\\xa0B', '12.5\\xa0KB', '3.21\\xa0GB', '–')
    """
    if count is None:
        return UNKNOWN
    value, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g}{SPACE}{unit}"


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units, below a minute in seconds.

    Examples
    --------
    >>> duration(0.84), duration(49), duration(200), duration(7500), duration(None)
    ('0.84\\xa0s', '49\\xa0s', '3\\xa0min 20\\xa0s', '2\\xa0h 5\\xa0min', '–')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 59.5:
        return f"{seconds:.2g}{SPACE}s"
    whole = round(seconds)
    units = {"d": whole // 86400, "h": whole // 3600 % 24, "min": whole // 60 % 60, "s": whole % 60}
    known = [(count, unit) for unit, count in units.items()]
    first = next(i for i, (count, _) in enumerate(known) if count)
    return " ".join(f"{count}{SPACE}{unit}" for count, unit in known[first : first + 2] if count)


def clock(time: float) -> str:
    """Return a Unix time as the time of day, with the date unless it is today's."""
    at = datetime.fromtimestamp(time)
    return at.strftime("%H:%M:%S" if at.date() == datetime.now().date() else "%Y-%m-%d %H:%M:%S")


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them.

    Examples
    --------
    >>> listed(["flu", "cold", "covid"])
    'flu, cold and covid'
    """
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def setting(value: Any) -> str:
    """Return the value of a setting as a person writes it.

    Examples
    --------
    >>> setting(None), setting(True), setting([10, 20]), setting({"mu": 0.1}), setting([])
    ('not set', 'yes', '10, 20', 'mu=0.1', 'none')
    """
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={setting(each)}" for key, each in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(setting, value)) or "none"
    return number(value) if isinstance(value, int | float) else str(value)


def _points(share: float, digits: int) -> str:
    text = f"{100 * share:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return text.replace("-", MINUS)
