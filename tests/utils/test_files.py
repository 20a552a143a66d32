"""Files are whole or not there; tensors come back to the bit or not at all."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedul._utils.files import (
    ENTRY,
    TEMPORARY,
    read_json,
    read_tensors,
    remove_leftovers,
    tensors_digest,
    write_bytes,
    write_json,
    write_tensors,
)
from fedul.errors import EnvironmentFailure, InputError

from ..worlds import repeatable

TENSORS = {
    "weights/head": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7,
    "weights/count": torch.tensor(3),
    "server/momentum": torch.tensor([1e-300, -0.0, float("inf")], dtype=torch.float64),
    "mask": torch.tensor([True, False, True]),
}
NOTES = {"round": 2, "score": 0.25, "history": [{"loss": 1.5, "name": "é"}]}

WRITE_UNDER_A_LIMIT = """
import resource, signal, sys
from pathlib import Path
from fedul.errors import EnvironmentFailure
from fedul._utils.files import write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # under the limit CPython 3.11 would cache truncated byte code without an error
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_bytes(Path(sys.argv[1]), b"x" * 1000)
except EnvironmentFailure as problem:
    print(problem)
"""


def write_with_a_full_disk(path: Path) -> str:
    """Return the error message when no file may grow beyond 100 bytes."""
    done = subprocess.run([sys.executable, "-c", WRITE_UNDER_A_LIMIT, str(path)], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    said = write_with_a_full_disk(path)
    assert said.startswith(f"could not write {path}: File too large; the previous content is intact.")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"state": b"old"}


def test_a_first_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    assert "could not write" in write_with_a_full_disk(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_the_file_is_refused_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(InputError, match="taken: is a folder or a device"):
        write_bytes(tmp_path / "taken", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_a_file_in_the_place_of_a_folder_is_a_fault_of_the_world(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(EnvironmentFailure, match="could not write"):
        write_bytes(tmp_path / "file" / "below", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_written_file_replaces_the_old_one_and_others_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    assert os.stat(path).st_mode & 0o777 == 0o644


def test_leftovers_of_a_killed_write_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    for name in (f"{TEMPORARY}abc", f"checkpoint/{TEMPORARY}def", "kept", ".kept"):
        (tmp_path / name).write_bytes(b"")
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [".kept", "checkpoint", "kept"]


def test_only_old_leftovers_are_removed_where_others_may_be_writing(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in (f"{TEMPORARY}old", f"{TEMPORARY}new", f"below/{TEMPORARY}old", ".kept"):
        (tmp_path / name).write_bytes(b"")
        if not name.endswith("new"):
            os.utime(tmp_path / name, (0, 0))
    remove_leftovers(tmp_path, below=False, older_than=24 * 3600)
    remove_leftovers(tmp_path / "nowhere", below=False, older_than=24 * 3600)
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
    assert found == [".kept", f"{TEMPORARY}new", "below", f"below/{TEMPORARY}old"]


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", NOTES)
    assert read_json(tmp_path / "a.json") == NOTES


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}}', b"\xff\xfe\x00"])
def test_a_file_that_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json: not a readable JSON file"):
        read_json(tmp_path / "a.json")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_json(tmp_path / "a.json")
    with pytest.raises(InputError, match="there is no such file"):
        read_tensors(tmp_path / "a.safetensors")


def test_a_number_that_json_does_not_have_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_tensors_and_notes_come_back_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS, NOTES)
    tensors, notes = read_tensors(path)
    assert notes == NOTES
    assert tensors_digest(tensors) == tensors_digest(TENSORS)
    assert {name: t.dtype for name, t in tensors.items()} == {name: t.dtype for name, t in TENSORS.items()}


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.complex64])
def test_tensors_of_any_type_are_stored(tmp_path: Path, kind: torch.dtype) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.ones(3).to(kind), "none": torch.ones(0, 2).to(kind)}, {})
    assert torch.equal(read_tensors(path)[0]["a"], torch.ones(3).to(kind))


def test_a_transposed_tensor_is_stored_by_its_values(tmp_path: Path) -> None:
    path, matrix = tmp_path / "a.safetensors", TENSORS["weights/head"]
    write_tensors(path, {"a": matrix.T}, {})
    assert torch.equal(read_tensors(path)[0]["a"], matrix.T)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tensors") / "whole.safetensors"
    write_tensors(path, TENSORS, NOTES)
    return path


def test_a_change_of_any_one_byte_of_a_tensors_file_is_refused(whole: Path, tmp_path: Path) -> None:
    content, path = whole.read_bytes(), tmp_path / "altered"
    pick = random.Random(0)
    for position in range(len(content)):
        bit, other = content[position] ^ 1, pick.choice([b for b in range(256) if b != content[position]])
        for byte in (bit, other):
            path.write_bytes(content[:position] + bytes([byte]) + content[position + 1 :])
            with pytest.raises(InputError, match=r"altered: (altered since|damaged or truncated)"):
                read_tensors(path)


@pytest.mark.parametrize("blank", [b"\t", b"\n", b"\r"])
def test_even_a_change_of_the_blanks_behind_the_header_is_refused(tmp_path: Path, blank: bytes) -> None:
    path = tmp_path / "a"
    for size in range(1, 9):
        write_tensors(path, {"x" * size: torch.zeros(1)}, {})
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        if content[end - 1 : end] == b" ":
            path.write_bytes(content[: end - 1] + blank + content[end:])
            with pytest.raises(InputError, match="altered since it was written"):
                read_tensors(path)
            return
    pytest.fail("no header was padded")


def test_a_tensors_file_cut_at_any_length_is_refused(whole: Path, tmp_path: Path) -> None:
    content, path = whole.read_bytes(), tmp_path / "cut"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"cut: (damaged or truncated|altered)"):
            read_tensors(path)


def test_a_tensors_file_with_something_behind_it_is_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "longer"
    path.write_bytes(whole.read_bytes() + b"\0")
    with pytest.raises(InputError, match="longer: damaged"):
        read_tensors(path)


def test_a_safetensors_file_of_another_program_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, tmp_path / "foreign")
    with pytest.raises(InputError, match="its digest does not match"):
        read_tensors(tmp_path / "foreign")


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "weights.pt")
    with pytest.raises(InputError, match="damaged or truncated"):
        read_tensors(tmp_path / "weights.pt")


tensors = st.dictionaries(
    st.text(st.sampled_from("ab/:("), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=4).map(lambda values: torch.tensor(values, dtype=torch.int16)),
    max_size=4,
)


@repeatable
@given(tensors, tensors)
def test_tensors_have_the_same_digest_only_if_they_are_the_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    same = one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    assert (tensors_digest(one) == tensors_digest(two)) == same


def test_the_digest_knows_neither_the_order_of_names_nor_the_layout_in_memory() -> None:
    turned = {name: TENSORS[name] for name in reversed(TENSORS)}
    turned["weights/head"] = TENSORS["weights/head"].T.contiguous().T
    assert tensors_digest(turned) == tensors_digest(TENSORS)


@pytest.mark.parametrize(
    "other", [torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), -torch.zeros(4)], ids=["shape", "type", "sign"]
)
def test_the_digest_tells_shapes_types_and_signs_of_zero_apart(other: Tensor) -> None:
    assert tensors_digest({"a": other}) != tensors_digest({"a": torch.zeros(4)})


def test_notes_are_under_the_digest_too(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = tmp_path / "a"
    write_tensors(path, TENSORS, NOTES)
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    save_file(TENSORS, path, {ENTRY: header[ENTRY][:64] + json.dumps({**NOTES, "round": 3})})
    with pytest.raises(InputError, match="altered since it was written"):
        read_tensors(path)


def test_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is a folder or a device; name a file"):
        write_bytes(pipe, b"content")
    assert pipe.is_fifo()


def test_equal_tensors_and_notes_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tensors(tmp_path / name, TENSORS, NOTES)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
