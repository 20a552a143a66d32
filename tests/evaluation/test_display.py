"""Diagnostics as text: words first, all of it within 80 columns."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from fedul.core import Federation
from fedul.data.load import load
from fedul.evaluation.check import check
from fedul.evaluation.check_display import MAX_CLIENTS

from ..factories import make_client, make_federation

GOOD = [[0.9, 0.1], [0.1, 0.9]]


def printed(shared: Federation) -> str:
    screen = io.StringIO()
    Console(file=screen, width=80, highlight=False).print(check(shared))
    return screen.getvalue()


@pytest.mark.parametrize(
    ("priors", "verdict"),
    [
        (GOOD, "Enough: the 1,000 rows are worth about"),
        ([[0.55, 0.45], [0.45, 0.55]], "Weak"),
        ([[0.5, 0.5], [0.5, 0.5]], "Not enough"),
    ],
)
def test_the_verdict_comes_first(priors: Sequence[Sequence[float]], verdict: str) -> None:
    assert printed(make_federation(make_client("north", priors, 500))).startswith(verdict)


def test_advice_comes_before_figures() -> None:
    text = printed(make_federation(make_client("north", GOOD, 100), make_client("south", [[0.5, 0.5]], 100)))
    assert 0 < text.index("linear model") < text.index("information") < text.index("told apart worst")


def test_tables_line_up_at_sixty_columns() -> None:
    rows = np.random.default_rng(0).normal(size=400)
    data = pa.table(
        {
            "month": ["January", "February"] * 200,
            "systolic_blood_pressure_at_admission": rows,
            "ward": [f"ward of the {place}" for place in ("north", "south", "east", "west")] * 100,
            "code": [f"{1000 * (number % 7):06d}" for number in range(400)],
        }
    )
    priors = pa.table({"month": ["January", "February"], "influenza": [0.7, 0.2], "common cold": [0.3, 0.8]})
    screen = io.StringIO()
    Console(file=screen, width=60, highlight=False).print(check(load(data, priors, set_column="month")))
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert "…" not in screen.getvalue()
    for head in ("type", "information", "worth of a row"):
        (start,) = [number for number, line in enumerate(lines) if head in line]
        rule, end = lines[start + 1], lines[start].rstrip()
        assert set(rule.strip()) == {"─"}
        assert len(rule.rstrip()) >= len(end)


def test_only_the_weakest_clients_are_shown_and_the_others_counted() -> None:
    purities = np.linspace(0.95, 0.6, MAX_CLIENTS + 3)
    clients = [make_client(f"client-{p:.2f}", [[p, 1 - p], [1 - p, p]], 100) for p in purities]
    text = printed(make_federation(*clients))
    assert text.count("client-") == MAX_CLIENTS
    assert "client-0.60" in text
    assert "client-0.95" not in text
    assert "and 3 more" in text


def test_long_names_fit_and_brackets_are_no_markup() -> None:
    names = ("covid [red]19[/red] " + "very " * 20, "well " + "and good " * 20)
    north = make_client("north " * 20, [[0.55, 0.45], [0.5, 0.5]], 3000, set_names=("[bold]May", "June"))
    text = printed(make_federation(north, classes=names))
    assert max(map(len, text.splitlines())) <= 80
    assert "covid [red]19[/red]" in text
