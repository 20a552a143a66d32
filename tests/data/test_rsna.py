from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fedul
from fedul.data import SOURCES, find_source, read_source, rsna
from fedul.errors import InputError

from ..data_files import write_slice

LABELS = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural", "any")
UNITS = (0, 40, 60, 70, 80, 100)  # of the slices of each class
IN_BRAIN_WINDOW = (0, 128, 191, 223, 255, 255)  # of 80 units: 0, 127.5 (to even), 191.25, 223.1, 255, more than 255
EACH = 12


def lines(image: str, *positive: str) -> list[str]:
    """The lines of an image in the published table."""
    kinds = {*positive, "any"} if positive else set()
    return [f"{image}_{name},{int(name in kinds)}" for name in LABELS]


def table(*images: list[str]) -> str:
    return "\n".join(["ID,Label", *(line for image in images for line in image)]) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The challenge in small: 12 images of each class, and two with two subtypes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = tmp_path / "data"
    rows = []
    for k, kind in enumerate(("healthy", *LABELS[:5])):
        for i in range(EACH):
            image = f"ID_{i:x}{k}f"
            rows.append(lines(image, kind) if k else lines(image))
            write_slice(target / f"stage_2_train/{image}.dcm", np.full((8, 8), 1024 + UNITS[k]))
    rows.append(lines("ID_many", "epidural", "subdural"))  # no such file: it need not be read
    rows.append(lines("ID_6431af929", "subdural"))
    (target / "stage_2_train.csv").write_text(table(*rows))
    return target


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(*images: list[str]) -> Path:
        path = tmp_path / "stage_2_train.csv"
        path.write_text(table(*images))
        return path

    return write


def test_every_slice_has_the_label_of_what_it_shows(folder: Path) -> None:
    data = read_source("rsna-hemorrhage", str(folder))
    assert list(data.classes) == ["healthy", *LABELS[:5]]
    assert data.train_inputs.shape[1:] == (3, 28, 28)
    assert data.train_inputs.dtype == torch.uint8
    for inputs, labels in ((data.train_inputs, data.train_labels), (data.test_inputs, data.test_labels)):
        assert inputs[:, 0, 0, 0].tolist() == [IN_BRAIN_WINDOW[label] for label in labels.tolist()]
    assert data.scaling.scale == 1 / 255


def test_all_single_hemorrhages_are_used_and_healthy_images_up_to_the_share_of_the_papers_table(folder: Path) -> None:
    data = read_source("rsna-hemorrhage", str(folder))
    counts = np.bincount(np.concatenate([data.train_labels, data.test_labels])).tolist()
    assert counts == [12, 12, 12, 12, 12, 12]  # 24 healthy ones would be the share


def test_healthy_images_beyond_their_share_are_left_out(written: Callable[..., Path]) -> None:
    healthy = [lines(f"ID_{i}") for i in range(100_000, 101_000)]
    ill = [lines(f"ID_{i}", "epidural") for i in range(100)]
    names, labels = rsna.chosen_rows(written(*healthy, *ill))
    assert np.bincount(labels).tolist() == [40, 100]  # 18,802 healthy to 47,198 others are 39.8 to 100
    assert names == sorted(names)
    assert rsna.chosen_rows(written(*ill, *healthy[::-1]))[0] == names


def test_as_many_rows_are_to_test_on_as_leave_the_papers_table_to_train_on() -> None:
    test = round(rsna.TEST_SHARE * 106_000)
    assert (106_000 - test) * 0.8 == 66_000 == 5 * 13_200
    assert (SOURCES["rsna-hemorrhage"].train_rows, SOURCES["rsna-hemorrhage"].test_rows) == (106_000 - test, test)


def test_training_and_test_rows_are_the_same_in_every_reading(folder: Path) -> None:
    first, second = read_source("rsna-hemorrhage", str(folder)), read_source("rsna-hemorrhage", str(folder))
    assert (len(first.train_labels), len(first.test_labels)) == (56, 16)
    assert torch.equal(first.test_inputs, second.test_inputs)
    assert np.array_equal(first.test_labels, second.test_labels)
    assert torch.equal(first.train_inputs, second.train_inputs)
    assert np.array_equal(first.train_labels, second.train_labels)


def test_images_with_several_subtypes_and_the_one_that_is_damaged_as_published_are_left_out(folder: Path) -> None:
    names, _ = rsna.chosen_rows(folder / "stage_2_train.csv")
    assert not {"ID_many", "ID_6431af929"} & set(names)
    assert len(names) == 6 * EACH


def test_a_study_is_dealt_from_the_slices(folder: Path) -> None:
    study = fedul.load("rsna-hemorrhage", data_dir=str(folder), clients=2, sets=2, test_prior="natural")
    assert study.federation.input_shape == (3, 28, 28)


@pytest.mark.parametrize("name", ["rsna-hemorrhage", "rsna-intracranial-hemorrhage-detection"])
def test_the_unpacked_archive_is_found_below_the_data_folder(folder: Path, name: str) -> None:
    moved = folder.rename(folder.with_name(name))
    assert find_source("rsna-hemorrhage", str(moved.parent)) == moved


def test_the_side_can_be_chosen(folder: Path) -> None:
    assert rsna.load(str(folder), side=4).test_inputs.shape == (16, 3, 4, 4)
    with pytest.raises(InputError, match="at least one pixel per side, got 0"):
        rsna.load(str(folder), side=0)


def test_converted_slices_are_kept_beside_the_source_and_need_no_dicom_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_source("rsna-hemorrhage", str(folder))
    cache = folder / "rsna-hemorrhage-28-brain40w80-subdural80w200-soft40w380.npz"
    assert sorted(path.name for path in folder.iterdir()) == [cache.name, "stage_2_train", "stage_2_train.csv"]
    (folder / "stage_2_train").rename(folder / "gone")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    after = read_source("rsna-hemorrhage", str(folder))
    assert torch.equal(before.train_inputs, after.train_inputs)
    assert np.array_equal(before.train_labels, after.train_labels)


def test_slices_of_another_side_are_not_mistaken_for_each_other(folder: Path) -> None:
    assert [rsna.load(str(folder), side=side).train_inputs.shape[-1] for side in (2, 4, 2)] == [2, 4, 2]


def test_a_changed_table_is_read_anew(folder: Path) -> None:
    read_source("rsna-hemorrhage", str(folder))
    path = folder / "stage_2_train.csv"
    path.write_text(
        path.read_text().replace("ID_00f_subdural,0", "ID_00f_subdural,1").replace("00f_any,0", "00f_any,1")
    )
    data = read_source("rsna-hemorrhage", str(folder))
    counts = np.bincount(np.concatenate([data.train_labels, data.test_labels])).tolist()
    assert counts == [11, 12, 12, 12, 12, 13]


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_damaged_cache_is_made_anew(folder: Path, kept: float) -> None:
    before = read_source("rsna-hemorrhage", str(folder))
    cache = folder / rsna.cache_name(28)
    content = cache.read_bytes()
    cache.write_bytes(content[: int(kept * len(content))])
    after = read_source("rsna-hemorrhage", str(folder))
    assert torch.equal(before.train_inputs, after.train_inputs)
    assert cache.stat().st_size == len(content)


def test_slices_of_a_folder_that_cannot_be_written_to_are_kept_in_the_users_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    before = read_source("rsna-hemorrhage", str(folder))
    assert not (folder / rsna.cache_name(28)).exists()
    assert (tmp_path / "cache/fedul/rsna-hemorrhage" / rsna.cache_name(28)).is_file()
    (folder / "stage_2_train").rename(folder / "gone")
    assert torch.equal(read_source("rsna-hemorrhage", str(folder)).train_inputs, before.train_inputs)


def test_a_damaged_slice_is_named_and_nothing_is_kept(folder: Path) -> None:
    path = folder / "stage_2_train/ID_32f.dcm"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match=re.escape(f"{path}: not a complete DICOM image")):
        read_source("rsna-hemorrhage", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["stage_2_train", "stage_2_train.csv"]


def test_a_missing_slice_is_named_before_any_is_read(folder: Path) -> None:
    (folder / "stage_2_train/ID_32f.dcm").unlink()
    (folder / "stage_2_train/ID_01f.dcm").write_bytes(b"")
    with pytest.raises(InputError, match=r"ID_32f.dcm: there is no such file \(1 of 72 images are missing\)"):
        read_source("rsna-hemorrhage", str(folder))


def test_without_the_table_it_is_said_how_to_get_the_data(folder: Path) -> None:
    (folder / "stage_2_train.csv").unlink()
    assert find_source("rsna-hemorrhage", str(folder)) is None
    with pytest.raises(InputError, match="not on this machine") as caught:
        read_source("rsna-hemorrhage", str(folder))
    assert str(folder) in str(caught.value)
    assert "unpack stage_2_train.csv and stage_2_train/ of Kaggle's rsna-intracranial" in str(caught.value)


def test_labels_are_bits_in_the_order_of_the_subtypes(written: Callable[..., Path]) -> None:
    path = written(lines("ID_a"), lines("ID_b", "epidural"), lines("ID_c", "subdural", "intraparenchymal"))
    assert rsna.read_labels(path) == {"ID_a": 0, "ID_b": 1, "ID_c": 16 + 2}


def test_equal_duplicates_are_accepted(written: Callable[..., Path]) -> None:
    image = lines("ID_b", "epidural")
    assert rsna.read_labels(written(image, lines("ID_a"), image)) == {"ID_b": 1, "ID_a": 0}


@pytest.mark.parametrize("second", [lines("ID_b"), lines("ID_b", "epidural", "subdural")])
def test_contradictory_duplicates_are_refused(written: Callable[..., Path], second: list[str]) -> None:
    with pytest.raises(InputError, match=r"stage_2_train.csv, line \d+: ID_b_\w+ contradicts an earlier line"):
        rsna.read_labels(written(lines("ID_b", "epidural"), second))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ID_b_fracture,0", r"line 8: 'fracture' is not one of epidural, .*subdural, any"),
        ("ID_b,0", r"line 8: 'b' is not one of epidural"),
        ("ID_b_any", "line 8: expected a label of 0 or 1"),
        ("ID_b_any,2", "line 8: expected a label of 0 or 1"),
        ("ID_b_any,0,0", "line 8: expected a label of 0 or 1"),
        ("ID_../../b_any,0", r"line 8: 'ID_../../b' is not an image's ID_"),
        ("ID_b_any,0", r"ID_b has no line for epidural, .*subdural"),
    ],
)
def test_a_line_that_is_wrong_is_named(written: Callable[..., Path], line: str, complaint: str) -> None:
    with pytest.raises(InputError, match=f"stage_2_train.csv(, |: ){complaint}.*restore the published file"):
        rsna.read_labels(written(lines("ID_a"), [line]))


@pytest.mark.parametrize("kinds", [("any",), ("epidural",)])
def test_any_must_agree_with_the_subtypes(written: Callable[..., Path], kinds: tuple[str, ...]) -> None:
    path = written([f"ID_b_{name},{int(name in kinds)}" for name in LABELS])
    with pytest.raises(InputError, match="'any' of ID_b contradicts its kinds of hemorrhage"):
        rsna.read_labels(path)


@pytest.mark.parametrize("content", [b"", b"id,label\n", b"\xff\xfe\x00", b"ID,Label\n"])
def test_a_file_that_is_not_the_table_is_refused(folder: Path, content: bytes) -> None:
    (folder / "stage_2_train.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"stage_2_train.csv: (the first line|not a readable CSV|no image has)"):
        read_source("rsna-hemorrhage", str(folder))


def test_reading_the_module_does_not_need_pydicom() -> None:
    program = "import sys, fedul.data.rsna; print('pydicom' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
