from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedul.data import find_source, read_source
from fedul.errors import InputError

BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FETCH_AGAIN = "fetch it again with 'fedul datasets fetch cifar10'"


def records(seed: int, count: int = 4) -> NDArray[np.uint8]:
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, 3072), np.uint8)
    return np.concatenate([generator.integers(0, 10, (count, 1), np.uint8), pixels], axis=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "cifar10" / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    for seed, file in enumerate(BATCHES):
        (target / file).write_bytes(records(seed).tobytes())
    return target


def test_batches_are_read_in_order_channel_by_channel(folder: Path) -> None:
    data = read_source("cifar10", str(folder))
    assert data.train_inputs.dtype == torch.uint8
    assert data.train_inputs.shape == (20, 3, 32, 32)
    assert data.test_inputs.shape == (4, 3, 32, 32)
    second = records(1)
    assert np.array_equal(data.train_inputs[4:8].numpy(), second[:, 1:].reshape(4, 3, 32, 32))
    assert data.train_labels[4:8].tolist() == second[:, 0].tolist()
    assert data.scaling.scale == 1 / 255


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_the_batches_are_found_in_the_data_folder_or_up_to_two_folders_below_it(folder: Path, levels: int) -> None:
    data_dir = [folder, *folder.parents][levels]
    assert find_source("cifar10", str(data_dir)) == folder


def test_batches_directly_in_a_folder_named_after_the_data_set_are_found(folder: Path) -> None:
    moved = folder.rename(folder.parent.parent / "batches")
    folder.parent.rmdir()
    moved.rename(folder.parent)
    assert find_source("cifar10", str(folder.parent.parent)) == folder.parent


def test_class_names_are_built_in_where_the_published_list_is_missing(folder: Path) -> None:
    assert list(read_source("cifar10", str(folder)).classes) == CLASSES


def test_class_names_come_from_the_published_list_where_it_is_there(folder: Path) -> None:
    names = [name.upper() for name in CLASSES]
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    assert list(read_source("cifar10", str(folder)).classes) == names


@pytest.mark.parametrize("content", [b"", b"cat\ndog\n", b"cat\n" * 10, b"\xff\xfe"])
def test_a_damaged_list_of_class_names_is_refused(folder: Path, content: bytes) -> None:
    (folder / "batches.meta.txt").write_bytes(content)
    with pytest.raises(InputError, match="expected 10 different class names") as caught:
        read_source("cifar10", str(folder))
    assert FETCH_AGAIN in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 3072, 3 * 3073 + 5, 10_001 * 3073])
def test_a_batch_that_is_not_whole_is_refused_by_name_with_a_remedy(folder: Path, size: int) -> None:
    path = folder / "data_batch_3.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(InputError) as caught:
        read_source("cifar10", str(folder))
    assert str(caught.value).startswith(f"{path}: {size:,} bytes")
    assert FETCH_AGAIN in str(caught.value)


def test_a_batch_that_is_cut_between_two_records_is_refused(folder: Path) -> None:
    (folder / "data_batch_3.bin").write_bytes(records(2)[:3].tobytes())
    with pytest.raises(InputError, match=r"data_batch_3.bin: 3 records where test_batch.bin has 4"):
        read_source("cifar10", str(folder))


def test_a_label_beyond_nine_is_refused(folder: Path) -> None:
    batch = records(0)
    batch[2, 0] = 10
    (folder / "test_batch.bin").write_bytes(batch.tobytes())
    with pytest.raises(InputError, match=r"test_batch.bin: labels must be in 0..9, found 10"):
        read_source("cifar10", str(folder))


def test_a_missing_batch_is_named(folder: Path) -> None:
    (folder / "data_batch_5.bin").unlink()
    assert find_source("cifar10", str(folder)) is None
    with pytest.raises(InputError, match=r"cifar10 is incomplete: .* lacks data_batch_5.bin"):
        read_source("cifar10", str(folder))
