"""Log of a coordinator that fails."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fedul.engines.flower.server import server_app
from fedul.errors import FedulError


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    logger, text = logging.getLogger("flwr"), io.StringIO()
    handler = logging.StreamHandler(text)
    logger.addHandler(handler)
    yield text
    logger.removeHandler(handler)
    logger.removeFilter(server_app.log_as_sentence)


def failed(settings: dict[str, Any]) -> Exception:
    """Return the error of a run with these settings, after Flower has logged it."""
    context: Any = SimpleNamespace(run_config=settings)
    grid: Any = None
    try:
        server_app.main(grid, context)
    except Exception as problem:
        logging.getLogger("flwr").error("%s raised an exception", "ServerApp", exc_info=problem)
        return problem
    raise AssertionError("nothing failed")


def test_an_error_of_fedul_is_one_sentence_in_the_log(log: io.StringIO) -> None:
    problem = failed({"classes": "a,b", "out": "/run", "algorithm": "nonsense"})
    assert isinstance(problem, FedulError)
    assert log.getvalue() == f"fedul: {problem}\n"


def test_an_unexpected_error_is_logged_with_its_traceback(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server_app, "run_coordinator", broken)
    failed({})
    assert "Traceback" in log.getvalue()
