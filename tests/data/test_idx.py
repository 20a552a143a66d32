from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedul.data import find_source, read_source
from fedul.data.idx import read_idx
from fedul.errors import InputError

from ..places import real_data

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
FETCH_AGAIN = "fetch it again with 'fedul datasets fetch mnist'"


def idx(values: NDArray[np.uint8]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


def images(count: int) -> NDArray[np.uint8]:
    return np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)


def labels(count: int) -> NDArray[np.uint8]:
    return (np.arange(count) % 10).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "mnist"
    target.mkdir()
    for name, values in [
        (TRAIN_IMAGES, images(12)),
        (TRAIN_LABELS, labels(12)),
        (TEST_IMAGES, images(5)),
        (TEST_LABELS, labels(5)),
    ]:
        (target / f"{name}.gz").write_bytes(gzip.compress(idx(values)))
    return target


def test_gzipped_files_are_read_as_images_with_one_channel(folder: Path) -> None:
    data = read_source("mnist", str(folder.parent))
    assert data.train_inputs.dtype == torch.uint8
    assert data.train_inputs.shape == (12, 1, 28, 28)
    assert np.array_equal(data.train_inputs[:, 0].numpy(), images(12))
    assert data.test_labels.tolist() == [0, 1, 2, 3, 4]
    assert data.scaling.scale == 1 / 255


def test_plain_files_are_read_like_gzipped_ones(folder: Path) -> None:
    for path in folder.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert np.array_equal(read_source("mnist", str(folder)).train_inputs[:, 0].numpy(), images(12))


def test_a_file_that_a_browser_unpacked_but_did_not_rename_is_read(folder: Path) -> None:
    path = folder / f"{TEST_LABELS}.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    assert read_source("mnist", str(folder)).test_labels.tolist() == [0, 1, 2, 3, 4]


def test_fashion_mnist_has_articles_of_clothing_as_classes(folder: Path) -> None:
    folder.rename(folder.with_name("fashion-mnist"))
    classes = read_source("fashion-mnist", str(folder.parent)).classes
    assert (classes[0], classes[9], len(classes)) == ("T-shirt/top", "Ankle boot", 10)


def test_mnist_files_are_not_taken_for_fashion_mnist(folder: Path) -> None:
    first = np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7], np.uint8)
    (folder / f"{TRAIN_IMAGES}.gz").write_bytes(gzip.compress(idx(images(len(first)))))
    (folder / f"{TRAIN_LABELS}.gz").write_bytes(gzip.compress(idx(first)))
    with pytest.raises(InputError, match="holds mnist, not fashion-mnist"):
        read_source("fashion-mnist", str(folder))


def test_files_are_found_in_the_folder_or_in_one_named_after_the_data_set(folder: Path) -> None:
    assert find_source("mnist", str(folder)) == find_source("mnist", str(folder.parent)) == folder
    assert find_source("fashion-mnist", str(folder.parent)) is None


def test_files_are_found_where_the_environment_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDUL_DATA", str(folder.parent))
    assert find_source("mnist") == folder


def test_a_folder_below_the_home_folder_may_be_written_with_a_tilde(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    assert find_source("mnist", "~/mnist") == folder


def test_absent_data_is_refused_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mnist is not on this machine .* 'fedul datasets fetch mnist'"):
        read_source("mnist", str(tmp_path))


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / f"{TEST_LABELS}.gz").unlink()
    with pytest.raises(InputError, match=f"mnist is incomplete: .* lacks {TEST_LABELS}; {FETCH_AGAIN}"):
        read_source("mnist", str(folder))


def cut_gzip(whole: bytes) -> bytes:
    return gzip.compress(whole)[:-20]


def cut_within(whole: bytes) -> bytes:
    return gzip.compress(whole[:-1])


def cut_header(whole: bytes) -> bytes:
    return whole[:7]


def wrong_checksum(whole: bytes) -> bytes:
    packed = gzip.compress(whole)
    return packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:]


def garbage_inside(whole: bytes) -> bytes:
    packed = gzip.compress(whole)
    return packed[:30] + b"\xff" * 30 + packed[60:]


def gzip_start_only(whole: bytes) -> bytes:
    return b"\x1f\x8b"


def junk_after_gzip(whole: bytes) -> bytes:
    return gzip.compress(whole) + b"junk"


def too_long(whole: bytes) -> bytes:
    return whole + b"\0"


def web_page(whole: bytes) -> bytes:
    return b"<html>please log in</html>"


def nothing(whole: bytes) -> bytes:
    return b""


def other_type(whole: bytes) -> bytes:
    return whole[:2] + b"\x0d" + whole[3:]


def many_dimensions(whole: bytes) -> bytes:
    return whole[:3] + b"\xff" + whole[4:]


def absurd_size(whole: bytes) -> bytes:
    return whole[:4] + b"\xff" * 12


DAMAGE = [
    cut_gzip,
    cut_within,
    cut_header,
    wrong_checksum,
    garbage_inside,
    gzip_start_only,
    junk_after_gzip,
    too_long,
    web_page,
    nothing,
    other_type,
    many_dimensions,
    absurd_size,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_in_one_sentence_with_a_remedy(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = folder / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))
    with pytest.raises(InputError) as caught:
        read_source("mnist", str(folder))
    message = str(caught.value)
    assert message.startswith(f"{path}: not a complete idx file (")
    assert message.endswith(f"{FETCH_AGAIN}.")
    assert "\n" not in message


def test_a_small_file_that_unpacks_to_more_than_it_announces_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9]) + bytes(50_000_000)))
    with pytest.raises(InputError, match="continues after the 9 bytes that its header announces"):
        read_idx(path)


def test_a_header_that_announces_gigabytes_reserves_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "false-header"
    path.write_bytes(bytes([0, 0, 8, 1]) + (2 * 1024**3).to_bytes(4, "big") + b"abc")
    with pytest.raises(InputError, match="ends after 3 of 2,147,483,648 bytes"):
        read_idx(path)


def test_a_missing_file_or_a_folder_is_an_input_error_too(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_idx(path)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (0,), (0, 28, 28)])
def test_an_idx_file_has_the_shape_that_was_written(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    (tmp_path / "file").write_bytes(idx(values))
    assert np.array_equal(read_idx(tmp_path / "file"), values)


@pytest.mark.parametrize(
    ("file", "values", "complaint"),
    [
        (TRAIN_LABELS, labels(11), "expected a label for each of 12 images"),
        (TRAIN_LABELS, np.full(12, 10, np.uint8), "labels must be in 0..9, found 10"),
        (TRAIN_LABELS, images(12), "expected a label for each of 12 images"),
        (TRAIN_IMAGES, labels(12), "expected images of 28 x 28"),
        (TRAIN_IMAGES, np.zeros((12, 32, 32), np.uint8), "expected images of 28 x 28"),
        (TEST_IMAGES, images(0), "expected images of 28 x 28"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    folder: Path, file: str, values: NDArray[np.uint8], complaint: str
) -> None:
    path = folder / f"{file}.gz"
    path.write_bytes(gzip.compress(idx(values)))
    with pytest.raises(InputError) as caught:
        read_source("mnist", str(folder))
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert FETCH_AGAIN in str(caught.value)


def test_the_fetched_file_counts_where_a_plain_one_stands_beside_it(folder: Path) -> None:
    (folder / TRAIN_IMAGES).write_bytes(b"damaged")
    assert len(read_source("mnist", str(folder)).train_labels) == 12


def test_the_real_mnist_has_the_published_counts() -> None:
    data = read_source("mnist", real_data("mnist")[0])
    assert data.train_inputs.shape == (60_000, 1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.train_labels).tolist() == counts
    assert np.bincount(data.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_the_real_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    _, source = real_data("mnist")
    shutil.copytree(source, tmp_path / "fashion-mnist")
    with pytest.raises(InputError, match="holds mnist, not fashion-mnist"):
        read_source("fashion-mnist", str(tmp_path))
