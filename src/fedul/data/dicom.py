"""CT slices from DICOM files: Hounsfield units, and windows of them as the channels of an image.

pydicom is an optional extra (`fedul[dicom]`), imported when a file is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedul.errors import InputError, first_line


@dataclass(frozen=True)
class Window:
    """Range of Hounsfield units of a channel, from black (centre - width/2) to white (centre + width/2)."""

    name: str
    centre: int
    width: int


def hounsfield(path: Path) -> Tensor:
    """Return the Hounsfield units (H, W) of a slice; an InputError says that the file is damaged."""
    pixels, about = _read(path, ("RescaleSlope", "RescaleIntercept", "BitsStored", "PixelRepresentation"), "of a CT ")
    intercept = float(about["RescaleIntercept"])
    if about["BitsStored"] == 12 and about["PixelRepresentation"] == 0 and intercept > -100:
        # Unsigned 12 bits without an offset cannot hold air at -1000: some scanners wrapped it around to 3096.
        pixels = np.where(pixels >= 3096, pixels - 4096, pixels)
    return torch.from_numpy(pixels * np.float32(about["RescaleSlope"]) + np.float32(intercept))


def grey_values(path: Path) -> NDArray[np.float32]:
    """Return the grey values (H, W) of an image, where brighter is larger."""
    pixels, about = _read(path, ("PhotometricInterpretation",), "")
    return -pixels if about["PhotometricInterpretation"] == "MONOCHROME1" else pixels


def _read(path: Path, fields: Sequence[str], kind: str) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Return the stored pixels (H, W) and these fields."""
    try:
        import pydicom
    except ImportError:
        raise InputError(
            f"{path}: DICOM files are read by pydicom, which is not installed; "
            "install it with: pip install 'fedul[dicom]'."
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings on padding, and on fields that are not used here
            slice_ = pydicom.dcmread(path)
            pixels = slice_.pixel_array.astype(np.float32)
            about = {field: getattr(slice_, field) for field in fields}
    except Exception as problem:  # pydicom, its decoders and NumPy each have different errors for a damaged file
        raise InputError(
            f"{path}: not a complete DICOM image {kind}({first_line(problem)}); get a complete copy of it."
        ) from None
    if pixels.ndim != 2:
        raise InputError(
            f"{path}: expected one grey slice, found pixels of shape {pixels.shape}; give one slice per file."
        )
    return pixels, about


def windowed(units: Tensor, windows: Sequence[Window], side: int) -> Tensor:
    """Return bytes (windows, side, side): one channel per window, clipped to its range and resized by area."""
    black = [window.centre - window.width / 2 for window in windows]
    channels = [((units - low) / window.width).clamp(0, 1) * 255 for low, window in zip(black, windows, strict=True)]
    shrunk = torch.nn.functional.interpolate(torch.stack(channels)[None], size=(side, side), mode="area")
    return shrunk[0].round().to(torch.uint8)
