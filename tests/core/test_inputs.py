"""Inputs are used where they lie, in memory or in a mapped file: nothing is copied, written or read as a whole."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedul
from fedul.core import Federation, Scaling, UnlabeledSets, gather_rows, tensor_view
from fedul.core import clients as clients_module
from fedul.core import inputs as inputs_module
from fedul.core.inputs import first_nonfinite_row, inputs_digest, memory_key
from fedul.engines.simulation.shared_inputs import SharedInputs
from fedul.errors import InputError

from ..worlds import random_priors, repeatable, seeds

ROWS = 240
CPU = torch.device("cpu")
KINDS = ["uint8", "float32", "float64"]


def values(kind: str, rows: int = ROWS) -> NDArray[Any]:
    return np.random.default_rng(0).integers(0, 256, (rows, 5)).astype(kind)


def mapped(path: Path, kind: str = "float32") -> NDArray[Any]:
    np.save(path, values(kind))
    return np.load(path, mmap_mode="r")


def federation(x: Any, clients: int = 4) -> Federation:
    """Clients that share one array; each names its rows, the odd ones as scattered numbers."""
    each = ROWS // clients
    members = []
    for c in range(clients):
        priors = random_priors(np.random.default_rng(c), 3, 3, purity=0.5)
        own = range(c * each, (c + 1) * each)
        rows = own if c % 2 == 0 else np.array(own)[::-1]
        members.append(UnlabeledSets.from_arrays(f"c{c}", x, np.arange(each) % 3, priors, rows=rows))
    return Federation(members, "abc", scaling=Scaling(1 / 255))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_file_trains_to_the_weights_of_loaded_rows_and_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.npy"
    x = mapped(path, kind)
    before = path.read_bytes()
    settings: dict[str, Any] = {"model": "mlp", "rounds": 2, "participation": 0.5, "batch_size": 16}
    from_file, from_memory = (fedul.train(federation(kept), **settings) for kept in (x, values(kind)))
    assert from_file.weights_sha256 == from_memory.weights_sha256
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_inputs_that_fit_the_network_are_never_copied(tmp_path: Path, kind: str) -> None:
    x = mapped(tmp_path / "x.npy", kind)
    there = SharedInputs().move(federation(x), CPU, torch.float32)
    assert {client.inputs.data_ptr() for client in there.clients} == {x.ctypes.data}


def test_a_federation_that_is_in_its_place_already_is_left_alone() -> None:
    whole = federation(values("float32"))
    assert SharedInputs().move(whole, CPU, torch.float32) is whole


def test_an_array_that_clients_share_is_converted_once() -> None:
    there = SharedInputs().move(federation(values("float32")), CPU, torch.float64)
    assert len({client.inputs.data_ptr() for client in there.clients}) == 1
    assert all(client.inputs.dtype == torch.float64 for client in there.clients)


def test_an_array_that_clients_share_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []

    def recorded(x: torch.Tensor) -> bytes:
        hashed.append(memory_key(x))
        return inputs_digest(x)

    monkeypatch.setattr(clients_module, "inputs_digest", recorded)
    federation(values("float32")).fingerprint()
    assert len(hashed) == 1


def test_parts_of_one_array_have_different_keys() -> None:
    x = torch.zeros(6, 2)
    keys = {memory_key(t) for t in (x, x[:3], x[3:], x[::2], x.view(torch.int32), x.view(2, 6), x.t())}
    assert len(keys) == 7
    assert memory_key(tensor_view(x.numpy())) == memory_key(x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fingerprint_does_not_depend_on_how_inputs_are_held(tmp_path: Path, kind: str) -> None:
    x = mapped(tmp_path / "x.npy", kind)
    held = [x, np.array(x), np.asfortranarray(x), torch.from_numpy(np.array(x)), np.repeat(x, 2, axis=1)[:, ::2]]
    assert len({federation(one).fingerprint() for one in held}) == 1


def test_the_fingerprint_is_the_hash_that_run_folders_of_earlier_versions_hold() -> None:
    one = federation(values("uint8"))
    digest = hashlib.sha256(repr((one.classes, one.test_prior.tolist(), one.scaling)).encode())
    for client in one.clients:
        digest.update(repr((client.name, torch.Size([ROWS, 5]), torch.uint8)).encode())
        digest.update(hashlib.sha256(values("uint8").tobytes()).digest())
        for rows in (client.train, client.held_out):
            digest.update(repr(len(rows)).encode())
            digest.update(rows.index.numpy().tobytes() + rows.sets.numpy().tobytes())
        digest.update(client.priors.tobytes())
    assert one.fingerprint() == digest.hexdigest()


@repeatable
@given(st.integers(0, 40), st.integers(0, 4), st.integers(1, 70), seeds)
def test_a_digest_in_blocks_is_that_of_all_bytes(rows: int, columns: int, block: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(columns, rows)).T  # not contiguous
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(inputs_module, "BLOCK_VALUES", block)
        assert inputs_digest(torch.from_numpy(x)) == hashlib.sha256(x.tobytes()).digest()


@repeatable
@given(st.integers(1, 40), st.integers(1, 70), st.sampled_from([np.nan, np.inf, -np.inf]), st.booleans(), seeds)
def test_the_first_bad_row_is_found_in_whichever_block_it_is(
    count: int, block: int, bad: float, scattered: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    x = np.full((count, 3), 1e38, np.float32)  # sums overflow, though every value is finite
    rows = generator.permutation(count)[: generator.integers(1, count + 1)] if scattered else None
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(inputs_module, "BLOCK_VALUES", block)
        assert first_nonfinite_row(torch.from_numpy(x), rows) is None
        order = np.arange(count) if rows is None else rows
        first, *others = np.sort(generator.choice(len(order), min(2, len(order)), replace=False))
        x[order[[first, *others]], generator.integers(3)] = bad
        assert first_nonfinite_row(torch.from_numpy(x), rows) == order[first]


@repeatable
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12), st.integers(1, 9), seeds)
def test_rows_of_many_clients_are_gathered_in_their_order_and_never_too_many_at_once(
    clients: list[tuple[int, int]], size: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    sources = [torch.rand(5, 2, generator=generator), torch.rand(5, 2, generator=generator), torch.ones(5, 2).double()]
    parts = [(sources[i], torch.randint(5, (n,), generator=generator)) for i, n in clients]
    found = list(gather_rows(parts, size))
    wanted = [row for source, index in parts for row in source[index]]
    assert [row.tolist() for rows in found for row in rows] == [row.tolist() for row in wanted]
    assert [row.dtype for rows in found for row in rows] == [row.dtype for row in wanted]
    assert all(len(rows) <= size for rows in found)


def test_rows_of_other_clients_may_be_bad() -> None:
    x = np.zeros((4, 2))
    x[3] = np.nan
    made = UnlabeledSets.from_arrays("a", x, [0, 1], np.eye(2), rows=[0, 2])
    assert made.train.index.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        (None, "row 8"),
        (range(5, 9), r"row 8 of its inputs \(number 7 from 0\)"),
        ([9, 7, 1, 0], r"row 8 of its inputs \(number 7 from 0\)"),
    ],
)
def test_a_bad_row_is_named_by_its_place_in_the_inputs(monkeypatch: pytest.MonkeyPatch, rows: Any, place: str) -> None:
    monkeypatch.setattr(inputs_module, "BLOCK_VALUES", 4)
    x = np.zeros((10, 2))
    x[7, 1] = np.nan
    count = 10 if rows is None else 4
    with pytest.raises(InputError, match=f"client 'a': {place} has a value that is missing or infinite"):
        UnlabeledSets.from_arrays("a", x, np.arange(count) % 2, np.eye(2), rows=rows)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([0, 1, 10], r"row numbers must lie in 0\.\.9, the rows of its inputs"),
        ([0, 1, -1], r"row numbers must lie in 0\.\.9"),
        (range(8, 11), r"row numbers must lie in 0\.\.9"),
        ([0, 1], "2 rows but 3 set numbers; give one for each row"),
        (slice(6, None), "4 rows but 3 set numbers"),
        ([], "0 rows but 3 set numbers"),
        ([4, 0, 4], "rows contains 4 twice"),
        ([0.0, 1.0, 2.0], "rows are a range, a slice or a list of whole numbers from 0"),
        (np.ones(10, bool), r"give np.flatnonzero\(mask\)"),
        ([[0, 1, 2]], "rows are a range, a slice or a list"),
        ([[0], [1, 2]], "rows are a range, a slice or a list"),
        ("abc", "rows are a range, a slice or a list"),
    ],
)
def test_rows_that_make_no_sense_are_refused_by_the_clients_name(rows: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=f"client 'north': .*{complaint}"):
        UnlabeledSets.from_arrays("north", np.zeros((10, 2)), [0, 1, 0], np.eye(2), rows=rows)


@repeatable
@given(st.integers(0, 20), st.integers(2, 30), st.floats(0, 0.9), seeds)
def test_naming_rows_of_a_shared_array_is_giving_those_rows(start: int, count: int, share: float, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(60, 2))
    sets = np.arange(count) % 2
    own = slice(start, start + count)
    alone = UnlabeledSets.from_arrays("a", x[own], sets, np.eye(2), held_out=share, seed=seed)
    for rows in (own, range(start, start + count), np.arange(start, start + count), torch.arange(start, start + count)):
        named = UnlabeledSets.from_arrays("a", x, sets, np.eye(2), rows=rows, held_out=share, seed=seed)
        for mine, theirs in ((named.train, alone.train), (named.held_out, alone.held_out)):
            assert torch.equal(named.inputs[mine.index], alone.inputs[theirs.index])
            assert torch.equal(mine.sets, theirs.sets)


def test_a_client_made_of_its_parts_takes_a_mapped_array_too(tmp_path: Path) -> None:
    x = mapped(tmp_path / "x.npy")
    first = federation(x).clients[0]
    assert replace(first, inputs=x).inputs.data_ptr() == x.ctypes.data
