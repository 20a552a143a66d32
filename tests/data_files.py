"""Data files for tests: CT slices, tables of two hospitals, and tables of class priors."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

TRAIN_HOSPITALS = (
    "train --data patients.csv --priors prevalence.csv --client-column hospital --set-column month "
    "--truth-column truth --rounds 10 --out RUN"
)
SYMPTOMS = {"flu": (39.0, 2.0, 0.8), "cold": (37.2, 5.0, 0.2)}


def random_patients(
    mix: dict[str, float], rows: int, generator: np.random.Generator
) -> tuple[list[str], list[list[str]]]:
    """Return true classes, and temperature (sometimes missing), days, cough and ward of synthetic patients."""
    classes = generator.choice(list(mix), rows, p=list(mix.values()))
    made = []
    for name in classes:
        degrees, days, cough = SYMPTOMS[name]
        temperature = "" if generator.random() < 0.05 else f"{generator.normal(degrees, 1.0):.1f}"
        coughs = "yes" if generator.random() < cough else "no"
        made.append([temperature, f"{generator.normal(days, 2):.2f}", coughs, generator.choice(["A", "B"])])
    return classes.tolist(), made


def write_hospitals(folder: Path) -> None:
    """Write patients.csv, prevalence.csv, new.csv and truth.csv."""
    generator = np.random.default_rng(0)
    head = ["temperature", "days", "cough", "ward"]
    lines, priors = [["hospital", "month", *head, "truth"]], [["hospital", "month", "flu", "cold"]]
    for hospital, shares in {"North": (0.2, 0.7), "South": (0.4, 0.9, 0.5)}.items():
        for month, share in enumerate(shares):
            truth, rows = random_patients({"flu": share, "cold": 1 - share}, 150, generator)
            lines += [[hospital, f"m{month}", *row, name] for row, name in zip(rows, truth, strict=True)]
            flu = truth.count("flu") / len(truth)
            priors.append([hospital, f"m{month}", f"{flu:.4f}", f"{1 - flu:.4f}"])
    truth, rows = random_patients({"flu": 0.1, "cold": 0.9}, 1000, generator)
    tables = {
        "patients": lines,
        "prevalence": priors,
        "new": [head, *rows],
        "truth": [["class"], *([t] for t in truth)],
    }
    for name, table in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table)


def class_priors(sets: dict[str, int]) -> str:
    """Return a CSV of priors of the ten digits: in set m of a client, class m is eleven times as common as others."""
    lines = [f"client,set,{','.join('0123456789')}"]
    for client, count in sets.items():
        for m in range(count):
            shares = ["0.55" if k == m % 10 else "0.05" for k in range(10)]
            lines.append(f"{client},{m + 1},{','.join(shares)}")
    return "\n".join(lines) + "\n"


def write_slice(
    path: Path, stored: ArrayLike, *, slope: float = 1, intercept: float = -1024, bits: int = 16, signed: bool = False
) -> None:
    """Write a CT slice as DICOM with these stored values (H, W): v means v * slope + intercept Hounsfield units."""
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
