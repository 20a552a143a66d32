"""MedNIST and the brain MRI: images in an .npz file that a user brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fedul
from fedul.data import SOURCES, find_source, read_source
from fedul.data.fetch import fetch
from fedul.errors import InputError

from ..places import real_data

FILES = {"mednist": "mednist28.npz", "brain-mri": "brain_mri28.npz"}
PARTS = {"mednist": [""], "brain-mri": ["train_", "test_"]}
ROWS = 240
FIRST_TESTED = [0, 3, 15, 17, 19]
"""First test rows of MedNIST if it had `ROWS` rows: published numbers depend on the split, so it must not change."""


def arrays(name: str) -> dict[str, NDArray[Any]]:
    """A small file of the source: the first two pixels of an image are its number, the third its label."""
    classes = SOURCES[name].classes
    made: dict[str, NDArray[Any]] = {"class_names": np.array([f"kind {k}" for k in range(classes)])}
    for part in PARTS[name]:
        images = np.zeros((ROWS, 28, 28), np.uint8)
        labels = np.arange(ROWS, dtype=np.uint8) % classes
        images[:, 0, 0], images[:, 0, 1], images[:, 0, 2] = np.arange(ROWS), part == "test_", labels
        made |= {f"{part}images": images, f"{part}labels": labels}
        if part:
            made[f"{part}unique"] = np.arange(ROWS) % 10 != 3
    return made


@pytest.fixture(params=FILES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, name: str) -> Path:
    np.savez(tmp_path / FILES[name], **arrays(name))
    return tmp_path / FILES[name]


def test_every_image_keeps_its_label(path: Path, name: str) -> None:
    data = read_source(name, str(path.parent))
    for inputs, labels in ((data.train_inputs, data.train_labels), (data.test_inputs, data.test_labels)):
        assert inputs.dtype == torch.uint8
        assert inputs.shape == (len(labels), 1, 28, 28)
        assert inputs[:, 0, 0, 2].tolist() == labels.tolist()
    assert list(data.classes) == [f"kind {k}" for k in range(SOURCES[name].classes)]
    assert data.scaling.scale == 1 / 255


def test_one_in_six_images_of_mednist_is_to_test_on_and_no_image_is_in_both(tmp_path: Path) -> None:
    np.savez(tmp_path / "mednist28.npz", **arrays("mednist"))
    first, second = read_source("mednist", str(tmp_path)), read_source("mednist", str(tmp_path))
    train, test = first.train_inputs[:, 0, 0, 0].tolist(), first.test_inputs[:, 0, 0, 0].tolist()
    assert (len(train), len(test)) == (200, 40)
    assert sorted(train + test) == list(range(ROWS))
    assert train == sorted(train)
    assert second.test_inputs[:, 0, 0, 0].tolist() == test
    assert test[:5] == FIRST_TESTED


def test_only_the_unique_brain_images_are_read_in_their_published_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "brain_mri28.npz", **arrays("brain-mri"))
    data = read_source("brain-mri", str(tmp_path))
    unique = [i for i in range(ROWS) if i % 10 != 3]
    assert data.train_inputs[:, 0, 0, :2].tolist() == [[i, 0] for i in unique]
    assert data.test_inputs[:, 0, 0, :2].tolist() == [[i, 1] for i in unique]


def test_a_study_is_dealt_by_name(path: Path, name: str) -> None:
    study = fedul.load(name, data_dir=str(path.parent), clients=2, sets=3)
    assert len(study.federation.clients) == 2
    assert len(study.federation.classes) == SOURCES[name].classes


def test_the_file_is_found_in_a_folder_named_after_the_source(path: Path, name: str) -> None:
    (path.parent / name).mkdir()
    moved = path.rename(path.parent / name / path.name)
    assert find_source(name, str(path.parent)) == moved.parent


def test_an_absent_file_is_said_to_be_obtained_by_the_user_and_how(path: Path, name: str) -> None:
    path.unlink()
    with pytest.raises(
        InputError, match=f"{name} is not on this machine .*cannot be fetched; make {path.name}"
    ) as caught:
        read_source(name, str(path.parent))
    assert str(path.parent) in str(caught.value)
    assert "--data-dir or FEDUL_DATA" in str(caught.value)
    assert "datasets fetch" not in str(caught.value)


def test_it_cannot_be_fetched_and_says_how_it_is_obtained(tmp_path: Path, name: str) -> None:
    assert SOURCES[name].instructions.startswith(f"make {FILES[name]}")
    with pytest.raises(InputError, match=f"{name} cannot be fetched"):
        fetch(name, str(tmp_path))


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.6, 0.99])
def test_a_cut_file_is_refused_by_name_with_a_remedy(path: Path, name: str, kept: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(InputError) as caught:
        read_source(name, str(path.parent))
    assert str(caught.value).startswith(f"{path}: not a readable .npz file of numbers (")
    assert str(caught.value).endswith(f"get a complete copy of {path.name}.")


def test_altered_bytes_are_noticed(path: Path, name: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable"):
        read_source(name, str(path.parent))


def test_a_bare_array_is_refused(path: Path, name: str) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="holds no array called"):
        read_source(name, str(path.parent))


def test_nothing_is_unpickled(path: Path, name: str) -> None:
    changed = arrays(name) | {f"{PARTS[name][-1]}labels": np.array([print] * ROWS, dtype=object)}
    np.savez(path, **changed)
    with pytest.raises(InputError, match=r"not a readable .npz file of numbers .*allow_pickle=False"):
        read_source(name, str(path.parent))


@pytest.mark.parametrize(
    ("what", "value", "complaint"),
    [
        ("images", None, "holds no array called .*images"),
        ("images", np.zeros((ROWS, 28, 27), np.uint8), "expected images of 28 x 28 bytes, found uint8 of shape"),
        ("images", np.zeros((ROWS, 28, 28), np.float32), "expected images of 28 x 28 bytes, found float32"),
        ("images", np.zeros((0, 28, 28), np.uint8), "expected images of 28 x 28 bytes"),
        ("images", np.uint8(3), "expected images of 28 x 28 bytes"),
        ("labels", None, "holds no array called .*labels"),
        ("labels", np.zeros(ROWS - 1, np.uint8), f"expected a label for each of {ROWS} images, a whole number"),
        ("labels", np.zeros(ROWS), f"expected a label for each of {ROWS} images, a whole number, found float64"),
        ("labels", np.full(ROWS, 9), r"labels must be in 0..\d, found 9"),
        ("labels", np.full(ROWS, -1), r"labels must be in 0..\d, found -1"),
    ],
)
def test_arrays_that_are_not_labelled_images_are_refused(
    path: Path, name: str, what: str, value: NDArray[Any] | None, complaint: str
) -> None:
    changed, key = arrays(name), f"{PARTS[name][-1]}{what}"
    if value is None:
        del changed[key]
    else:
        changed[key] = value
    np.savez(path, **changed)
    with pytest.raises(InputError, match=complaint):
        read_source(name, str(path.parent))


@pytest.mark.parametrize("names", [["a", "b"], ["a"] * 6, ["a"] * 4, list(range(6)), list(range(4))])
def test_class_names_must_be_as_many_different_words(path: Path, name: str, names: list[Any]) -> None:
    np.savez(path, **(arrays(name) | {"class_names": np.array(names)}))
    with pytest.raises(InputError, match=r"expected \d different class names"):
        read_source(name, str(path.parent))


@pytest.mark.parametrize("mask", [np.ones(3, np.bool_), np.ones(ROWS, np.uint8)])
def test_a_mask_that_does_not_fit_the_brain_images_is_refused(tmp_path: Path, mask: NDArray[Any]) -> None:
    np.savez(tmp_path / "brain_mri28.npz", **(arrays("brain-mri") | {"test_unique": mask}))
    with pytest.raises(InputError, match=f"true or false in test_unique for each of {ROWS} images"):
        read_source("brain-mri", str(tmp_path))


def test_the_real_file_has_the_listed_numbers(name: str) -> None:
    folder, _ = real_data(name)
    data, source = read_source(name, folder), SOURCES[name]
    assert (len(data.train_labels), len(data.test_labels)) == (source.train_rows, source.test_rows)
    assert len(data.classes) == source.classes == len(np.unique(data.test_labels))
    seen = {row.tobytes() for row in data.train_inputs.numpy()}
    assert not any(row.tobytes() in seen for row in data.test_inputs.numpy())
