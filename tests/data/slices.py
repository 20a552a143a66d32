"""CT slices as the hemorrhage challenge has them, written with pydicom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian


def write_slice(
    path: Path, stored: ArrayLike, *, slope: float = 1, intercept: float = -1024, bits: int = 16, signed: bool = False
) -> None:
    """A DICOM file with these stored values (H, W); a value v means v * slope + intercept Hounsfield units."""
    pixels = np.asarray(stored, np.int16 if signed else np.uint16)
    dicom = Dataset()
    dicom.file_meta = FileMetaDataset()
    dicom.file_meta.MediaStorageSOPClassUID = dicom.SOPClassUID = CTImageStorage
    dicom.file_meta.MediaStorageSOPInstanceUID = dicom.SOPInstanceUID = "1.2.3"
    dicom.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dicom.Rows, dicom.Columns = pixels.shape
    dicom.SamplesPerPixel, dicom.PhotometricInterpretation = 1, "MONOCHROME2"
    dicom.BitsAllocated, dicom.BitsStored, dicom.HighBit = 16, bits, bits - 1
    dicom.PixelRepresentation = int(signed)
    dicom.RescaleSlope, dicom.RescaleIntercept = slope, intercept
    dicom.add_new("PixelData", "OW", pixels.astype("<i2" if signed else "<u2").tobytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    dicom.save_as(path, enforce_file_format=True)
