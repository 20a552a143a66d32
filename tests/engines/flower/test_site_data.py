"""A site keeps its rows for a run, and reports problems of its state folder in its own log."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedul.core import PriorScope, Rows, UnlabeledSets
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.site.handlers import handle, public_text
from fedul.engines.flower.site.row_cache import read_row_cache, write_row_cache
from fedul.engines.flower.site.site_data import SiteData
from fedul.errors import EnvironmentFailure

from .test_faults import TABLE, hospitals, two_classes
from .test_parity import settings, weights
from .wire import Wire, digits_sites

CHANGED = "fedul: the site's files or settings have changed; this run continues with the rows it joined with."
SCOPE = PriorScope("rows", rounding=0.005)
NO_PLAN = "fedul: the plan of this run is missing in the state folder; it is taken from this message."
HIDDEN = "its settings or its data have an error; see its log"


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Warnings and errors in the log of the site."""
    lines: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Listening(logging.WARNING)
    logging.getLogger("flwr").addHandler(handler)
    yield lines
    logging.getLogger("flwr").removeHandler(handler)


class Eventful(Wire):
    """A wire that calls a function just before the sites are asked to train in some round."""

    def __init__(self, sites: dict[int, Path], round_number: int, happens: Callable[[], object]) -> None:
        super().__init__(sites)
        self.round_number, self.happens = round_number, happens

    def request(self, kind: str, messages: Any, seconds: float) -> Any:
        if kind == "train" and any(message.document["round"] == self.round_number for message in messages.values()):
            self.happens()
        return super().request(kind, messages, seconds)


def three_rounds(folder: Path) -> dict[str, Any]:
    return {**two_classes(folder), "rounds": 3, "select": "last"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    folder = tmp_path_factory.mktemp("undisturbed")
    return weights(run_coordinator(Wire(hospitals(folder)), three_rounds(folder)))


CHANGES = {
    "fewer rows": lambda place: (place / "rows.csv").write_text("".join(TABLE.splitlines(keepends=True)[:90])),
    "other values": lambda place: (place / "rows.csv").write_text(TABLE.replace("yes", "no")),
    "no file": lambda place: (place / "rows.csv").unlink(),
    "other settings": lambda place: (place / "site.toml").write_text(
        (place / "site.toml").read_text() + "held-out = 0.5\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_within_a_run_a_site_continues_with_the_rows_it_joined_with(
    tmp_path: Path, log: list[str], undisturbed: torch.Tensor, change: str
) -> None:
    wire = Eventful(hospitals(tmp_path), 2, lambda: None)
    happened: list[int] = []

    def once() -> None:
        if not happened:
            happened.append(len(wire.requests))
            CHANGES[change](tmp_path / "west")

    wire.happens = once
    found = run_coordinator(wire, three_rounds(tmp_path))
    assert [line.clients for line in found.history] == [3, 3, 3]
    assert torch.equal(weights(found), undisturbed)
    assert log == [CHANGED] * sum(node == 3 for node, _ in wire.requests[happened[0] :])


def test_a_site_that_returns_to_a_run_has_the_rows_that_it_joined_with(
    tmp_path: Path, log: list[str], undisturbed: torch.Tensor
) -> None:
    def returns() -> None:
        if 3 in wire.settings:
            CHANGES["fewer rows"](tmp_path / "west")
            wire.settings[30] = wire.settings.pop(3)

    class Returning(Eventful):
        def request_one(self, kind: str, node: int, message: Message) -> Any:
            return super().request_one(kind, node if node in self.settings else 30, message)

    wire = Returning(hospitals(tmp_path), 2, returns)
    found = run_coordinator(wire, three_rounds(tmp_path))
    assert (30, "join") in wire.requests
    assert [line.clients for line in found.history] == [3, 3, 3]
    assert torch.equal(weights(found), undisturbed)
    assert set(log) == {CHANGED}


def test_another_run_reads_the_changed_files(tmp_path: Path, log: list[str]) -> None:
    sites = hospitals(tmp_path)
    run_coordinator(Wire(sites), two_classes(tmp_path))
    CHANGES["fewer rows"](tmp_path / "west")
    found = run_coordinator(Wire(sites), two_classes(tmp_path / "second"))
    assert found.history[0].clients == 3
    assert log == []
    sizes = {file.stat().st_size for file in (tmp_path / "west" / "state").rglob("rows.safetensors")}
    assert len(sizes) == 2


def test_a_row_cache_keeps_which_rows_have_labels_and_what_priors_speak_of(tmp_path: Path) -> None:
    priors = np.array([[0.6, 0.4], [0.3, 0.7], [0.0, 1.0]])
    train, held_out = Rows(torch.arange(5), torch.tensor([0, 1, 2, 2, 2])), Rows(torch.tensor([5]), torch.tensor([2]))
    client = UnlabeledSets("north", torch.rand(6, 2), train, held_out, priors, labelled_sets=[2], prior_scope=SCOPE)
    write_row_cache(tmp_path / "rows.safetensors", client, {"data": "digest"})
    cached = read_row_cache(tmp_path / "rows.safetensors", "north")
    assert cached is not None
    assert list(cached[0].labelled_sets) == [2]
    assert cached[0].prior_scope == SCOPE
    assert cached[0].labelled_rows == client.labelled_rows == 4


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"x" * 100)])
def test_a_missing_or_damaged_row_cache_is_made_again_and_logged(
    tmp_path: Path, log: list[str], undisturbed: torch.Tensor, harm: Callable[[Path], object]
) -> None:
    def harmed() -> None:
        for file in (tmp_path / "west" / "state").rglob("rows.safetensors"):
            harm(file)

    found = run_coordinator(Eventful(hospitals(tmp_path), 2, harmed), three_rounds(tmp_path))
    assert torch.equal(weights(found), undisturbed)
    (line,) = log
    assert "the encoded rows of this run are missing in" in line


def test_a_coordinator_cannot_change_the_spec_within_a_run(tmp_path: Path) -> None:
    class Changing(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            if kind == "train":
                for message in messages.values():
                    message.document["spec"]["test_prior"] = [0.9, 0.1]
            return super().request(kind, messages, seconds)

    with pytest.raises(EnvironmentFailure, match="north: this run had other settings or another spec when"):
        run_coordinator(Changing(hospitals(tmp_path)), two_classes(tmp_path))


def test_a_change_of_a_file_with_brackets_in_its_name_is_noticed(tmp_path: Path) -> None:
    file = hospitals(tmp_path)[1]
    (file.parent / "rows.csv").rename(file.parent / "rows [1].csv")
    file.write_text(file.read_text().replace("rows.csv", "rows [1].csv"))
    data = SiteData.read(str(file))
    before = data._data_digest()
    os.utime(file.parent / "rows [1].csv", (1, 1))
    assert data._data_digest() != before


def no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("problem_kind", ["a file in its place", "a full disk"])
def test_an_unwritable_state_folder_is_reported_to_the_site_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem_kind: str
) -> None:
    requests: dict[str, Message] = {}

    class Listening(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            if 3 in messages:
                requests[kind] = messages[3]
            return super().request(kind, messages, seconds)

    sites = hospitals(tmp_path)
    run_coordinator(Listening(sites), two_classes(tmp_path))
    state = tmp_path / "west" / "state"
    shutil.rmtree(state)
    if problem_kind == "a full disk":
        monkeypatch.setattr(os, "fsync", no_space)
    else:
        state.write_text("a file")
    for kind in ("join", "train"):
        with pytest.raises(EnvironmentFailure) as problem:
            handle(kind, SiteData.read(str(sites[3])), requests[kind])
        sentence = str(problem.value)
        assert sentence.startswith(f"the state folder {state} cannot be used (")
        assert sentence.endswith("free disk space, or choose another folder (state in the site's settings).")
        assert public_text(problem.value) == HIDDEN


def test_an_unwritable_algorithm_state_is_reported_to_the_site_alone(tmp_path: Path) -> None:
    def blocked() -> None:
        states = next((tmp_path / "client-2" / "state").rglob("clients"))
        shutil.rmtree(states)
        states.write_text("a file")

    wire = Eventful(digits_sites(tmp_path, 3, rows=300), 2, blocked)
    found = run_coordinator(wire, settings(tmp_path, 3, rounds=2, algorithm="scaffold"))
    assert found.history[1].site_errors == {"client-2": HIDDEN}


def lose(folder: Path) -> Callable[[], object]:
    return lambda: shutil.rmtree(folder / "client-2" / "state")


def test_a_site_that_lost_the_state_of_an_algorithm_logs_it_and_continues(tmp_path: Path, log: list[str]) -> None:
    wire = Eventful(digits_sites(tmp_path, 3, rows=300), 3, lose(tmp_path))
    found = run_coordinator(wire, settings(tmp_path, 3, rounds=4, algorithm="scaffold"))
    assert [line.clients for line in found.history] == [3, 3, 3, 3]
    missing = f"the state of round 2 is missing in {tmp_path / 'client-2' / 'state'}"
    assert log == [NO_PLAN, f"fedul: {missing}; the site continues without it."]


@pytest.mark.parametrize("happens_in", [2, 4])
def test_no_state_is_missing_where_the_method_stores_none(tmp_path: Path, log: list[str], happens_in: int) -> None:
    options = {"method": "fedul-refined", "method-option": ["earliest=1", "latest=2"], "rounds": 4}
    wire = Eventful(digits_sites(tmp_path, 2, rows=300), happens_in, lose(tmp_path))
    run_coordinator(wire, settings(tmp_path, 2, **options))
    assert log == [NO_PLAN]


def test_no_state_is_missing_where_none_is_stored(tmp_path: Path, log: list[str]) -> None:
    run_coordinator(Eventful(digits_sites(tmp_path, 2, rows=300), 2, lose(tmp_path)), settings(tmp_path, 2))
    assert log == [NO_PLAN]


def test_a_state_folder_that_others_can_write_to_is_refused(tmp_path: Path, log: list[str]) -> None:
    (tmp_path / "west" / "state").mkdir(parents=True)
    (tmp_path / "west" / "state").chmod(0o777)
    sites = hospitals(tmp_path)
    found = run_coordinator(Wire(sites), two_classes(tmp_path, 2))
    assert found.history[0].clients == 2
    assert any("other accounts can write to it" in line for line in log)
