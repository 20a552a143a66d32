"""Optical digits, the embedded default: 5,620 handwritten digits of 8 x 8 pixels in 0..16.

E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository 1998. The
split is the published one: 30 writers in the training rows, 13 others in the test rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedul.core import Scaling
from fedul.data.arrays import read_npz
from fedul.data.source import LabelledData

TRAIN_ROWS = 3_823


def load(data_dir: str | None) -> LabelledData:
    """Read the digits from the package; `data_dir` is ignored."""
    stored = read_npz(Path(__file__).with_name("digits.npz"), ("X", "y", "class_names"), "install fedul again")
    inputs, labels = torch.from_numpy(stored["X"].reshape(-1, 1, 8, 8)), stored["y"].astype(np.int64)
    return LabelledData(
        train_inputs=inputs[:TRAIN_ROWS],
        train_labels=labels[:TRAIN_ROWS],
        test_inputs=inputs[TRAIN_ROWS:],
        test_labels=labels[TRAIN_ROWS:],
        classes=tuple(stored["class_names"].tolist()),
        scaling=Scaling(scale=1 / 16),
    )
