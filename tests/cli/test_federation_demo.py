"""What `fedul federation demo` says of a run that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedul.cli import federation_demo
from fedul.errors import WorldError
from fedul.runs import RunFolder


class Ended:
    """A federation whose run has ended, as Flower tells of it."""

    folder = Path("federation")

    def __init__(self, details: str) -> None:
        self.details = details

    def status(self, run: int) -> str:
        return "finished:failed"

    def flwr(self, *arguments: str) -> str:
        assert arguments == ("ls", "--run-id", "7", "--format", "json")
        return json.dumps({"runs": [{"status": "finished:failed", "status-details": self.details}]})


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ("ServerApp failed with exception: 1 of 2 sites came.", "the run ended (finished:failed): 1 of 2 sites came."),
        ("", "the run ended (finished:failed): Flower does not say why; see federation/logs."),
    ],
)
def test_a_run_that_fails_says_why_in_the_coordinators_own_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, details: str, said: str
) -> None:
    monkeypatch.setattr(federation_demo, "POLL_SECONDS", 0.0)
    ended: Any = Ended(details)
    nobody: Any = None
    with pytest.raises(WorldError) as problem:
        federation_demo._watch(ended, RunFolder(tmp_path / "run"), 7, 3, nobody)
    assert str(problem.value) == said
    assert problem.value.exit_code == 1
