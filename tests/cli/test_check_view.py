"""What `fedul check` prints: words first, all of it within 80 columns."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
from rich.console import Console

from fedul.cli import show
from fedul.cli.check_view import CLIENTS, show_outlook
from fedul.evaluation.outlook import outlook
from fedul.federation import Federation

from ..evaluation.federations import client, federation

GOOD = [[0.9, 0.1], [0.1, 0.9]]


def printed(shared: Federation, monkeypatch: pytest.MonkeyPatch) -> str:
    screen = io.StringIO()
    monkeypatch.setattr(show, "out", Console(file=screen, width=80, highlight=False))
    show_outlook(outlook(shared))
    return screen.getvalue()


@pytest.mark.parametrize(
    ("priors", "verdict"),
    [
        (GOOD, "Enough: the 1,000 rows are worth about"),
        ([[0.55, 0.45], [0.45, 0.55]], "Enough, but costly"),
        ([[0.5, 0.5], [0.5, 0.5]], "Not enough"),
    ],
)
def test_the_verdict_comes_first(
    priors: Sequence[Sequence[float]], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(federation(client("north", priors, 500)), monkeypatch).startswith(verdict)


def test_advice_comes_before_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(federation(client("north", GOOD), client("south", [[0.5, 0.5]])), monkeypatch)
    assert 0 < text.index("with one set only") < text.index("condition") < text.index("told apart worst")


def test_only_the_weakest_clients_are_shown_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    purities = np.linspace(0.95, 0.6, CLIENTS + 3)
    clients = [client(f"client-{p:.2f}", [[p, 1 - p], [1 - p, p]]) for p in purities]
    text = printed(federation(*clients), monkeypatch)
    assert text.count("client-") == CLIENTS
    assert "client-0.60" in text
    assert "client-0.95" not in text
    assert "and 3 more" in text


def test_long_names_fit_and_brackets_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("covid [red]19[/red] " + "very " * 20, "well " + "and good " * 20)
    north = client("north " * 20, [[0.55, 0.45], [0.5, 0.5]], 3000, ("[bold]May", "June"))
    text = printed(federation(north, classes=names), monkeypatch)
    assert max(map(len, text.splitlines())) <= 80
    assert "covid [red]19[/red]" in text
