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

from fedul.errors import InputError


@dataclass(frozen=True)
class Window:
    """The Hounsfield units that a channel shows, from black (centre - width/2) to white (centre + width/2)."""

    name: str
    centre: int
    width: int


def hounsfield(path: Path) -> Tensor:
    """The Hounsfield units (H, W) of a slice; a file that is cut or damaged is an InputError."""
    pixels, about = _read(path, ("RescaleSlope", "RescaleIntercept", "BitsStored", "PixelRepresentation"), "of a CT ")
    intercept = float(about["RescaleIntercept"])
    if about["BitsStored"] == 12 and about["PixelRepresentation"] == 0 and intercept > -100:
        # Without an offset, 12 bits with no sign cannot hold air at -1000: some scanners wrapped it round to 3096.
        pixels = np.where(pixels >= 3096, pixels - 4096, pixels)
    return torch.from_numpy(pixels * np.float32(about["RescaleSlope"]) + np.float32(intercept))


def grey_values(path: Path) -> NDArray[np.float32]:
    """The values (H, W) of an image of any kind, brighter being more."""
    pixels, about = _read(path, ("PhotometricInterpretation",), "")
    return -pixels if about["PhotometricInterpretation"] == "MONOCHROME1" else pixels


def _read(path: Path, fields: Sequence[str], kind: str) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """The pixels (H, W) as they are stored, and these fields."""
    try:
        import pydicom
    except ImportError:
        raise InputError(
            f"{path}: DICOM files are read by pydicom, which is not installed; "
            "install it with: pip install 'fedul[dicom]'."
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on padding, and on fields that are not used here
            slice_ = pydicom.dcmread(path)
            pixels = slice_.pixel_array.astype(np.float32)
            about = {field: getattr(slice_, field) for field in fields}
    except Exception as problem:  # pydicom, its decoders and NumPy each have errors of their own for a damaged file
        reason = next(iter(str(problem).splitlines()), "").rstrip(".:") or type(problem).__name__
        raise InputError(f"{path}: not a whole DICOM image {kind}({reason}); get a whole copy of it.") from None
    if pixels.ndim != 2:
        raise InputError(f"{path}: expected one grey slice, found pixels of shape {pixels.shape}; get a copy of it.")
    return pixels, about


def windowed(units: Tensor, windows: Sequence[Window], side: int) -> Tensor:
    """Bytes (windows, side, side): a channel for each window, cut off at its ends and then shrunk by area."""
    black = [window.centre - window.width / 2 for window in windows]
    channels = [((units - low) / window.width).clamp(0, 1) * 255 for low, window in zip(black, windows, strict=True)]
    shrunk = torch.nn.functional.interpolate(torch.stack(channels)[None], size=(side, side), mode="area")
    return shrunk[0].round().to(torch.uint8)
