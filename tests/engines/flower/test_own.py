"""What a site keeps for a run stays as it was, and what it cannot keep it says in its own log."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedul.engines.flower.coordinator import coordinate
from fedul.engines.flower.letters import Letter
from fedul.engines.flower.own import Own
from fedul.engines.flower.site import answered, told
from fedul.errors import WorldError

from .test_faults import TABLE, hospitals, two_classes
from .test_parity import settings, weights
from .wire import Wire, digits_sites

CHANGED = "fedul: the site's files or settings have changed; in this run it goes on with its rows as they were."
STANDARD = "its settings or its data have a fault, which its own log tells"


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What the site's log is told."""
    told: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler = Listening()
    logging.getLogger("flwr").addHandler(handler)
    yield told
    logging.getLogger("flwr").removeHandler(handler)


class Eventful(Wire):
    """Something happens just before the sites are asked to train in some round."""

    def __init__(self, sites: dict[int, Path], round_number: int, happens: Callable[[], object]) -> None:
        super().__init__(sites)
        self.round_number, self.happens = round_number, happens

    def asked(self, kind: str, letters: Any, seconds: float) -> Any:
        if kind == "train" and any(letter.notes["round"] == self.round_number for letter in letters.values()):
            self.happens()
        return super().asked(kind, letters, seconds)


def three_rounds(folder: Path) -> dict[str, Any]:
    return {**two_classes(folder), "rounds": 3, "select": "last"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    folder = tmp_path_factory.mktemp("undisturbed")
    return weights(coordinate(Wire(hospitals(folder)), three_rounds(folder)))


CHANGES = {
    "fewer rows": lambda place: (place / "rows.csv").write_text("".join(TABLE.splitlines(keepends=True)[:90])),
    "other values": lambda place: (place / "rows.csv").write_text(TABLE.replace("yes", "no")),
    "no file": lambda place: (place / "rows.csv").unlink(),
    "other settings": lambda place: (place / "site.toml").write_text(
        (place / "site.toml").read_text() + "validation = 0.5\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_within_a_run_a_site_goes_on_with_its_rows_as_they_were(
    tmp_path: Path, log: list[str], undisturbed: torch.Tensor, change: str
) -> None:
    wire = Eventful(hospitals(tmp_path), 2, lambda: None)
    happened: list[int] = []

    def once() -> None:
        if not happened:
            happened.append(len(wire.asked_for))
            CHANGES[change](tmp_path / "west")

    wire.happens = once
    found = coordinate(wire, three_rounds(tmp_path))
    assert [line["clients"] for line in found.history] == [3, 3, 3]
    assert torch.equal(weights(found), undisturbed)
    assert log == [CHANGED] * sum(node == 3 for node, _ in wire.asked_for[happened[0] :])


def test_a_site_that_comes_back_in_the_same_run_has_the_rows_that_it_first_joined_with(
    tmp_path: Path, log: list[str], undisturbed: torch.Tensor
) -> None:
    def returns() -> None:
        if 3 in wire.settings:
            CHANGES["fewer rows"](tmp_path / "west")
            wire.settings[30] = wire.settings.pop(3)

    class Returning(Eventful):
        def _asked(self, kind: str, node: int, letter: Letter) -> Any:
            return super()._asked(kind, node if node in self.settings else 30, letter)

    wire = Returning(hospitals(tmp_path), 2, returns)
    found = coordinate(wire, three_rounds(tmp_path))
    assert (30, "join") in wire.asked_for
    assert [line["clients"] for line in found.history] == [3, 3, 3]
    assert torch.equal(weights(found), undisturbed)
    assert set(log) == {CHANGED}


def test_another_run_has_the_rows_as_they_are(tmp_path: Path, log: list[str]) -> None:
    sites = hospitals(tmp_path)
    coordinate(Wire(sites), two_classes(tmp_path))
    CHANGES["fewer rows"](tmp_path / "west")
    found = coordinate(Wire(sites), two_classes(tmp_path / "second"))
    assert found.history[0]["clients"] == 3
    assert log == []
    sizes = {file.stat().st_size for file in (tmp_path / "west" / "state").rglob("rows.safetensors")}
    assert len(sizes) == 2


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"x" * 100)])
def test_rows_that_are_gone_or_damaged_are_made_again_and_the_log_says_so(
    tmp_path: Path, log: list[str], undisturbed: torch.Tensor, harm: Callable[[Path], object]
) -> None:
    def harmed() -> None:
        for file in (tmp_path / "west" / "state").rglob("rows.safetensors"):
            harm(file)

    found = coordinate(Eventful(hospitals(tmp_path), 2, harmed), three_rounds(tmp_path))
    assert torch.equal(weights(found), undisturbed)
    (said,) = log
    assert "the rows that were kept for this run are gone from" in said


def test_a_coordinator_cannot_change_within_a_run_what_was_agreed_on(tmp_path: Path) -> None:
    class Changing(Wire):
        def asked(self, kind: str, letters: Any, seconds: float) -> Any:
            if kind == "train":
                for letter in letters.values():
                    letter.notes["agreement"]["test_prior"] = [0.9, 0.1]
            return super().asked(kind, letters, seconds)

    with pytest.raises(WorldError, match=f"0 of 2 updates that are needed.*north: {STANDARD}"):
        coordinate(Changing(hospitals(tmp_path)), two_classes(tmp_path))


def test_a_file_with_brackets_in_its_name_is_seen_to_change(tmp_path: Path) -> None:
    file = hospitals(tmp_path)[1]
    (file.parent / "rows.csv").rename(file.parent / "rows [1].csv")
    file.write_text(file.read_text().replace("rows.csv", "rows [1].csv"))
    own = Own.read(str(file))
    before = own._stamp()
    os.utime(file.parent / "rows [1].csv", (1, 1))
    assert own._stamp() != before


def no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("trouble", ["a file in its place", "a full disk"])
def test_a_state_folder_that_cannot_be_written_is_told_to_the_site_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    asked: dict[str, Letter] = {}

    class Listening(Wire):
        def asked(self, kind: str, letters: Any, seconds: float) -> Any:
            if 3 in letters:
                asked[kind] = letters[3]
            return super().asked(kind, letters, seconds)

    sites = hospitals(tmp_path)
    coordinate(Listening(sites), two_classes(tmp_path))
    state = tmp_path / "west" / "state"
    shutil.rmtree(state)
    if trouble == "a full disk":
        monkeypatch.setattr(os, "fsync", no_space)
    else:
        state.write_text("a file")
    for kind in ("join", "train"):
        with pytest.raises(WorldError) as problem:
            answered(kind, Own.read(str(sites[3])), asked[kind])
        sentence = str(problem.value)
        assert sentence.startswith(f"the state folder {state} cannot be used (")
        assert sentence.endswith("make room, or name another folder (state in the site's settings).")
        assert told(problem.value) == STANDARD


def test_what_an_algorithm_keeps_and_cannot_write_is_told_to_the_site_alone(tmp_path: Path) -> None:
    def blocked() -> None:
        kept = next((tmp_path / "client-2" / "state").rglob("kept"))
        shutil.rmtree(kept)
        kept.write_text("a file")

    wire = Eventful(digits_sites(tmp_path, 3, rows=300), 2, blocked)
    found = coordinate(wire, settings(tmp_path, 3, rounds=2, algorithm="scaffold"))
    assert found.history[1]["troubles"] == {"client-2": STANDARD}


def lose(folder: Path) -> Callable[[], object]:
    return lambda: shutil.rmtree(folder / "client-2" / "state")


def test_a_site_that_lost_what_an_algorithm_kept_says_so_and_goes_on(tmp_path: Path, log: list[str]) -> None:
    wire = Eventful(digits_sites(tmp_path, 3, rows=300), 3, lose(tmp_path))
    found = coordinate(wire, settings(tmp_path, 3, rounds=4, algorithm="scaffold"))
    assert [line["clients"] for line in found.history] == [3, 3, 3, 3]
    gone = f"what was kept here after round 2 is gone from {tmp_path / 'client-2' / 'state'}"
    assert log == [f"fedul: {gone}; the site goes on without it."]


@pytest.mark.parametrize(("happens_in", "lost"), [(2, False), (4, True)])
def test_a_method_that_begins_to_keep_something_late_has_lost_nothing_before(
    tmp_path: Path, log: list[str], happens_in: int, lost: bool
) -> None:
    options = {"method": "fedul-refined", "method-option": ["earliest=1", "latest=2"], "rounds": 4}
    wire = Eventful(digits_sites(tmp_path, 2, rows=300), happens_in, lose(tmp_path))
    coordinate(wire, settings(tmp_path, 2, **options))
    assert len(log) == int(lost)


def test_where_nothing_is_kept_nothing_is_lost(tmp_path: Path, log: list[str]) -> None:
    coordinate(Eventful(digits_sites(tmp_path, 2, rows=300), 2, lose(tmp_path)), settings(tmp_path, 2))
    assert log == []


def test_a_state_folder_that_others_can_write_into_is_not_used(tmp_path: Path, log: list[str]) -> None:
    (tmp_path / "west" / "state").mkdir(parents=True)
    (tmp_path / "west" / "state").chmod(0o777)
    sites = hospitals(tmp_path)
    found = coordinate(Wire(sites), two_classes(tmp_path, 2))
    assert found.history[0]["clients"] == 2
    assert any("others than the site's account can write there" in line for line in log)
