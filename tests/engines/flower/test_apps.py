"""What Flower logs of a coordinator that fails."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fedul.engines.flower import server_app
from fedul.errors import FedulError


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    logger, told = logging.getLogger("flwr"), io.StringIO()
    handler = logging.StreamHandler(told)
    logger.addHandler(handler)
    yield told
    logger.removeHandler(handler)
    logger.removeFilter(server_app.in_a_sentence)


def failed(settings: dict[str, Any]) -> Exception:
    """What ends a run with such settings, after Flower has logged it."""
    context: Any = SimpleNamespace(run_config=settings)
    grid: Any = None
    try:
        server_app.main(grid, context)
    except Exception as problem:
        logging.getLogger("flwr").error("%s raised an exception", "ServerApp", exc_info=problem)
        return problem
    raise AssertionError("nothing failed")


def test_a_failure_of_the_run_is_one_sentence_in_its_log(log: io.StringIO) -> None:
    problem = failed({"classes": "a,b", "out": "/run", "algorithm": "nonsense"})
    assert isinstance(problem, FedulError)
    assert log.getvalue() == f"fedul: {problem}\n"


def test_a_fault_of_ours_is_logged_with_all_that_led_to_it(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server_app, "coordinate", broken)
    failed({})
    assert "Traceback" in log.getvalue()
