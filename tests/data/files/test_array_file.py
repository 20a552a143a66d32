"""Rows to classify are read from any of the known files; a damaged or foreign one is refused, never unpickled."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from fedul.data.files.array_file import read_array_file
from fedul.errors import InputError

TABLE = np.arange(12.0).reshape(4, 3) / 8
PIXELS = (np.arange(2 * 28 * 28) % 256).astype(np.uint8).reshape(2, 28, 28)


def saved(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def packed(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", packed(np.save, TABLE)),
        ("a.NPY", packed(np.save, np.asfortranarray(TABLE))),
        ("a.npz", packed(np.savez, X=TABLE, y=np.arange(4))),
        ("a.npz", packed(np.savez_compressed, anything=TABLE)),
        ("a.csv", "\n".join(",".join(map(str, row)) for row in TABLE)),
        ("a.csv", "\ufeffone,two,three\r\n" + "\r\n".join(",".join(map(str, row)) for row in TABLE) + "\r\n\r\n"),
        ("a.txt", "\n".join(", ".join(map(str, row)) for row in TABLE)),
    ],
)
def test_a_table_is_read_from_each_kind_of_file(tmp_path: Path, name: str, content: bytes | str) -> None:
    rows = read_array_file(saved(tmp_path / name, content))
    assert rows.dtype == np.float32
    assert_array_equal(rows, TABLE)


def test_bytes_stay_bytes(tmp_path: Path) -> None:
    rows = read_array_file(saved(tmp_path / "a.npy", packed(np.save, PIXELS)))
    assert rows.dtype == np.uint8


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_an_array_that_needs_no_conversion_is_read_when_its_turn_comes(tmp_path: Path, kind: type) -> None:
    file = saved(tmp_path / "a.npy", packed(np.save, np.zeros((4, 3), kind)))
    rows = read_array_file(file)
    with file.open("r+b") as changed:
        changed.seek(-rows.nbytes, os.SEEK_END)
        changed.write(np.ones((4, 3), kind).tobytes())
    assert (rows == 1).all()


def test_the_file_is_not_changed_through_its_rows(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npy", packed(np.save, PIXELS))
    read_array_file(file)[:] = 1
    assert_array_equal(np.load(file), PIXELS)


def test_an_array_without_rows_is_read(tmp_path: Path) -> None:
    assert read_array_file(saved(tmp_path / "a.npy", packed(np.save, TABLE[:0]))).shape == (0, 3)


def test_idx_images_are_read(tmp_path: Path) -> None:
    header = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in PIXELS.shape)
    assert_array_equal(read_array_file(saved(tmp_path / "t10k-images-idx3-ubyte", header + PIXELS.tobytes())), PIXELS)


class Trap:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickled_objects_are_refused_and_not_run(tmp_path: Path, name: str) -> None:
    trap = np.array([[Trap(tmp_path / "sprung")]], dtype=object)
    save = np.save if name == "a.npy" else np.savez
    with pytest.raises(InputError, match="not a readable NumPy file of numbers"):
        read_array_file(saved(tmp_path / name, packed(save, trap)))
    with pytest.raises(InputError, match="not a readable NumPy file of numbers"):
        read_array_file(saved(tmp_path / name, pickle.dumps(Trap(tmp_path / "sprung"))))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.npy", packed(np.save, np.arange(3)), r"holds int64 of shape \(3,\); give a table of numbers"),
        ("a.npy", packed(np.save, np.array([["a"]])), "holds <U1 of shape"),
        ("a.npy", packed(np.save, np.ones((2, 2), bool)), "holds bool of shape"),
        ("a.npy", packed(np.save, np.ones((2, 2), complex)), "holds complex128 of shape"),
        ("a.npy", b"", "not a readable NumPy file"),
        ("a.npz", packed(np.savez, a=TABLE, b=TABLE), "holds a, b; name the rows 'X'"),
        ("a.npz", packed(np.savez), "holds nothing; name the rows 'X'"),
        ("a.csv", "", "holds no rows"),
        ("a.csv", "one,two\n", "holds no rows"),
        ("a.csv", "1,2\n3\n", "line 2: 1 cells, the first row has 2"),
        ("a.csv", "1,2\n3,x\n", "line 2: a cell is not a number"),
        ("a.csv", "1,2\n3,\n", "line 2: a cell is not a number"),
        ("a.csv", b"1,\xff\n", "not a readable CSV file"),
        ("a.parquet", b"PAR1", r"unknown kind of file; give \.npy"),
        ("t10k-images-idx3-ubyte", b"\0\0\x08\x03\0", "not a complete idx file"),
        ("t10k-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x01\x05", r"holds uint8 of shape \(1,\)"),
    ],
)
def test_a_file_without_a_table_of_numbers_is_refused(
    tmp_path: Path, name: str, content: bytes | str, complaint: str
) -> None:
    with pytest.raises(InputError, match=f"{name}(: |, ){complaint}"):
        read_array_file(saved(tmp_path / name, content))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_array_file(tmp_path / "a.npy")


DAMAGED = {
    "a.npy": packed(np.save, TABLE),
    "plain.npz": packed(np.savez, X=TABLE),
    "packed.npz": packed(np.savez_compressed, X=np.tile(TABLE, (20, 1))),
}


def flipped(content: bytes) -> list[bytes]:
    """The content with another value in one of its bytes, for every second byte."""
    generator = np.random.default_rng(0)
    found = []
    for position in range(0, len(content), 2):
        byte = int(generator.integers(1, 256)) ^ content[position]
        found.append(content[:position] + bytes([byte]) + content[position + 1 :])
    return found


def read_or_refused(path: Path) -> NDArray[Any] | str:
    """The rows of a file, or the sentence with which it is refused."""
    try:
        return read_array_file(path)
    except InputError as problem:
        return str(problem)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_was_cut_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    for length in range(0, len(DAMAGED[name]), 5):
        with pytest.raises(InputError, match=name):
            read_array_file(saved(tmp_path / name, DAMAGED[name][:length]))


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(tmp_path: Path, name: str) -> None:
    whole = read_array_file(saved(tmp_path / name, DAMAGED[name]))
    outcomes = [read_or_refused(saved(tmp_path / name, content)) for content in flipped(DAMAGED[name])]
    refusals = [each for each in outcomes if isinstance(each, str)]
    assert refusals
    assert all(name in each for each in refusals)
    for rows in (each for each in outcomes if not isinstance(each, str)):
        assert rows.dtype in (np.float32, np.uint8)
        assert rows.ndim >= 2
        if name.endswith(".npz"):  # has checksums: what is not refused was damaged where no number is
            assert_array_equal(rows, whole)


def test_numbers_beyond_single_precision_become_infinite_without_a_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = read_array_file(saved(tmp_path / "a.csv", "1e300,1\n"))
    assert_array_equal(rows, [[np.inf, 1]])
