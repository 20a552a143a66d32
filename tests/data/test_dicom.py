from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydicom import dcmread

from fedul.data.dicom import Window, hounsfield, windowed
from fedul.data.rsna import WINDOWS
from fedul.errors import InputError

from ..data_files import write_slice


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ID_abc.dcm"


@pytest.mark.parametrize("signed", [False, True])
def test_stored_values_become_hounsfield_units_by_slope_and_intercept(path: Path, signed: bool) -> None:
    write_slice(path, [[0, 1], [500, 1024]], slope=2, intercept=-1024, signed=signed)
    assert hounsfield(path).tolist() == [[-1024, -1022], [-24, 1024]]


def test_signed_values_need_no_intercept(path: Path) -> None:
    write_slice(path, [[-1000, 40]], intercept=0, signed=True)
    assert hounsfield(path).tolist() == [[-1000, 40]]


def test_air_that_was_wrapped_round_in_twelve_bits_is_unwrapped(path: Path) -> None:
    write_slice(path, [[3096, 4095, 0, 40, 3071]], intercept=0, bits=12)
    assert hounsfield(path).tolist() == [[-1000, -1, 0, 40, 3071]]


def test_twelve_bits_with_an_offset_are_taken_as_they_are(path: Path) -> None:
    write_slice(path, [[0, 3096, 4095]], intercept=-1024, bits=12)
    assert hounsfield(path).tolist() == [[-1024, 2072, 3071]]


def test_a_window_runs_from_black_at_its_lower_end_to_white_at_its_upper_end() -> None:
    units = torch.tensor([[-1000.0, 0.0, 16.0, 40.0, 80.0, 3000.0]])
    image = windowed(units.expand(6, 6), [Window("brain", 40, 80)], 6)
    assert image.dtype == torch.uint8
    assert image[0, 0].tolist() == [0, 0, 51, 128, 255, 255]


@pytest.mark.parametrize(
    ("units", "brain_subdural_soft"),
    [
        (-1000, [0, 0, 0]),
        (-150, [0, 0, 0]),
        (-20, [0, 0, 87]),  # 130 of 380: 87.2
        (0, [0, 26, 101]),  # 20 of 200: 25.5, to even; 150 of 380: 100.7
        (40, [128, 76, 128]),  # 40 of 80: 127.5, to even; 60 of 200: 76.5, to even; 190 of 380: 127.5, to even
        (80, [255, 128, 154]),  # 100 of 200: 127.5, to even; 230 of 380: 154.3
        (180, [255, 255, 221]),  # 330 of 380: 221.4
        (230, [255, 255, 255]),
    ],
)
def test_the_channels_are_the_brain_subdural_and_soft_tissue_windows(
    units: float, brain_subdural_soft: list[int]
) -> None:
    image = windowed(torch.full((4, 4), float(units)), WINDOWS, 2)
    assert image.shape == (3, 2, 2)
    assert image[:, 0, 0].tolist() == brain_subdural_soft


def test_a_slice_is_shrunk_by_the_mean_of_what_its_windows_show() -> None:
    # Bone among air: the mean of the units, 1000, would be white, but half of the area is black.
    units = torch.tensor([[3000.0, -1000.0], [-1000.0, 3000.0]]).repeat(2, 2)
    assert windowed(units, [Window("brain", 40, 80)], 2).tolist() == [[[128, 128], [128, 128]]]


@pytest.mark.parametrize("shape", [(7, 5), (2, 2), (512, 512)])
def test_slices_of_any_size_get_the_same_side(shape: tuple[int, int]) -> None:
    assert windowed(torch.full(shape, 80.0), WINDOWS, 3)[0].tolist() == [[255] * 3] * 3


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.1, 0.5, 0.9])
def test_a_cut_file_is_refused_by_name(path: Path, kept: float) -> None:
    write_slice(path, np.ones((32, 32)))
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(InputError) as caught:
        hounsfield(path)
    assert str(caught.value).startswith(f"{path}: not a complete DICOM image of a CT (")
    assert str(caught.value).endswith("get a complete copy of it.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["RescaleSlope", "RescaleIntercept", "PixelData", "Rows", "BitsStored"])
def test_a_file_without_a_field_that_is_needed_is_refused_by_name(path: Path, field: str) -> None:
    write_slice(path, np.ones((4, 4)))
    dicom = dcmread(path)
    del dicom[field]
    dicom.save_as(path)
    with pytest.raises(InputError, match=r"ID_abc.dcm: not a complete DICOM image of a CT \(") as caught:
        hounsfield(path)
    assert field in str(caught.value).replace(" ", "")


def test_a_file_that_is_no_dicom_is_refused_by_name(path: Path) -> None:
    path.write_text("ID,Label\n" * 100)
    with pytest.raises(InputError, match=r"ID_abc.dcm: not a complete DICOM image"):
        hounsfield(path)


def test_a_film_of_several_slices_is_refused(path: Path) -> None:
    write_slice(path, np.ones((4, 4)))
    dicom = dcmread(path)
    dicom.NumberOfFrames, dicom.Rows = 2, 2
    dicom.save_as(path)
    with pytest.raises(InputError, match=r"expected one grey slice, found pixels of shape \(2, 2, 4\)"):
        hounsfield(path)


def test_without_pydicom_the_extra_that_brings_it_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(
        InputError, match=r"pydicom, which is not installed; install it with: pip install 'fedul\[dicom\]'"
    ):
        hounsfield(path)
