"""The state of a client is that of the last checkpoint, wherever a run was killed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedul.engines.client_store import ClientStore, DiskStore, MemoryStore
from fedul.errors import InputError
from fedul.methods.base import ClientState

from ..worlds import repeatable


def state_of(value: float) -> ClientState:
    return {"layer/c": torch.full((2, 3), value), "n": torch.tensor(int(value))}


def value_of(store: ClientStore, client: str) -> float | None:
    found = store.read(client)
    return float(found["layer/c"][0, 0]) if found else None


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_the_latest_state_of_each_client_is_read(tmp_path: Path, kind: str) -> None:
    store: ClientStore = MemoryStore() if kind == "memory" else DiskStore(tmp_path)
    store.rewind(0)
    assert store.read("north") == {}
    for number in (1, 2, 5):
        store.write("north", number, state_of(number))
    store.write("south", 5, state_of(50))
    assert (value_of(store, "north"), value_of(store, "south"), value_of(store, "east")) == (5, 50, None)
    assert store.read("north")["n"].dtype == torch.int64


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_an_empty_state_leaves_the_previous_one(tmp_path: Path, kind: str) -> None:
    store: ClientStore = MemoryStore() if kind == "memory" else DiskStore(tmp_path)
    store.write("north", 1, {})
    assert store.read("north") == {}
    store.write("north", 2, state_of(2))
    store.write("north", 3, {})
    assert value_of(store, "north") == 2


def test_a_memory_store_is_empty_after_rewinding() -> None:
    store = MemoryStore()
    store.write("north", 1, state_of(1))
    store.checkpointed(1)
    assert value_of(store, "north") == 1
    store.rewind(0)
    assert store.read("north") == {}


def test_the_state_of_a_checkpoint_stays_until_the_next_checkpoint(tmp_path: Path, store: DiskStore) -> None:
    store.write("north", 1, state_of(1))
    store.checkpointed(1)
    for number in (2, 3):
        store.write("north", number, state_of(number))
    again = DiskStore(tmp_path)
    again.rewind(1)
    assert value_of(again, "north") == 1


def test_states_that_no_checkpoint_refers_to_are_deleted(tmp_path: Path, store: DiskStore) -> None:
    for number in range(1, 9):
        store.write("north", number, state_of(number))
        store.checkpointed(number)
        assert len(files(tmp_path)) <= 2
    assert {file.stem.partition("@")[2] for file in files(tmp_path)} == {"7", "8"}


def test_a_client_that_last_took_part_long_before_the_checkpoint_resumes_with_that_state(
    tmp_path: Path, store: DiskStore
) -> None:
    store.write("north", 1, state_of(1))
    store.checkpointed(5)
    store.write("north", 6, state_of(6))
    again = DiskStore(tmp_path)
    again.rewind(5)
    assert value_of(again, "north") == 1


def test_rewinding_drops_later_rounds(tmp_path: Path, store: DiskStore) -> None:
    store.write("north", 3, state_of(3))
    store.write("south", 4, state_of(4))
    again = DiskStore(tmp_path)
    again.rewind(3)
    assert (value_of(again, "north"), value_of(again, "south")) == (3, None)
    again.rewind(0)
    assert value_of(again, "north") is None
    assert files(tmp_path) == []


def test_rewinding_without_states_makes_no_folder(tmp_path: Path) -> None:
    DiskStore(tmp_path / "clients").rewind(3)
    assert not (tmp_path / "clients").exists()


clients = st.sets(st.sampled_from(["north", "south", "east"]))


@settings(repeatable, max_examples=40)
@given(st.lists(st.tuples(clients, clients, st.sampled_from(["checkpoint", "continue", "kill"])), max_size=12))
def test_a_run_killed_anywhere_resumes_with_the_states_of_its_checkpoint(
    rounds: list[tuple[set[str], set[str], str]],
) -> None:
    with TemporaryDirectory() as folder:
        store = DiskStore(Path(folder))
        store.rewind(0)
        number, attempt = 0, 0.0
        now: dict[str, float] = {}
        at_checkpoint, checkpoint = dict(now), 0
        for whole, cut, then in rounds:
            number += 1
            for client in sorted(whole if then != "kill" else cut):
                attempt += 1
                store.write(client, number, state_of(attempt))
                now[client] = attempt
            if then == "checkpoint":
                store.checkpointed(number)
                at_checkpoint, checkpoint = dict(now), number
            elif then == "kill":
                store = DiskStore(Path(folder))
                store.rewind(checkpoint)
                now, number = dict(at_checkpoint), checkpoint
            assert {name: value_of(store, name) for name in ("north", "south", "east")} == {
                name: now.get(name) for name in ("north", "south", "east")
            }
            assert len(files(Path(folder))) <= 2 * 3


@settings(repeatable, max_examples=40)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4, unique=True))
def test_a_client_may_have_any_name(names: list[str]) -> None:
    with TemporaryDirectory() as folder:
        store = DiskStore(Path(folder) / "clients")
        for number, name in enumerate(names):
            store.write(name, 1, state_of(number))
        again = DiskStore(Path(folder) / "clients")
        again.rewind(1)
        assert [value_of(again, name) for name in names] == list(range(len(names)))


@pytest.mark.parametrize(
    "name",
    ["../../escape", "/etc/passwd", "a/b\\c", "nul\0byte", "Zürich 北 🏥", "x" * 5000, ".", "a@3.safetensors", "*[?]"],
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    store = DiskStore(tmp_path / "clients")
    store.write(name, 1, state_of(1))
    assert value_of(store, name) == 1
    assert [file.parent for file in files(tmp_path)] == [tmp_path / "clients"]


@pytest.mark.parametrize("place", [-1, 40], ids=["tensors", "header"])
def test_a_file_that_was_tampered_with_is_refused(tmp_path: Path, store: DiskStore, place: int) -> None:
    store.write("north", 1, state_of(1))
    (file,) = files(tmp_path)
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"safetensors: (altered since it was written|damaged or truncated)"):
        store.read("north")


def test_a_file_that_was_cut_is_refused(tmp_path: Path, store: DiskStore) -> None:
    store.write("north", 1, state_of(1))
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match="damaged or truncated"):
        store.read("north")


def test_a_missing_file_is_reported(tmp_path: Path, store: DiskStore) -> None:
    store.write("north", 1, state_of(1))
    files(tmp_path)[0].unlink()
    with pytest.raises(InputError, match="there is no such file"):
        store.read("north")


def test_the_file_of_another_client_is_refused(tmp_path: Path, store: DiskStore) -> None:
    store.write("north", 1, state_of(1))
    (north,) = files(tmp_path)
    store.write("south", 1, state_of(2))
    (south,) = set(files(tmp_path)) - {north}
    north.write_bytes(south.read_bytes())
    with pytest.raises(InputError, match="is not of client 'north'; restore a copy"):
        store.read("north")


def test_a_missing_state_of_the_checkpoint_is_refused(tmp_path: Path, store: DiskStore) -> None:
    store.write("north", 1, state_of(1))
    versions = store.versions(9)
    (north,) = files(tmp_path)
    north.unlink()
    with pytest.raises(InputError, match="is missing, and the checkpoint refers to it; restore a copy"):
        store.rewind(1, versions)
