"""Optical digits, the embedded default: 5,620 handwritten digits of 8 x 8 pixels in 0..16.

E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository 1998. The
split is the published one: 30 writers to train on, 13 others to test on.
"""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch

from fedul.data.source import LabelledData
from fedul.federation import Scaling

TRAIN_ROWS = 3_823


def load(data_dir: str | None) -> LabelledData:
    """The digits; they come with the package, so `data_dir` does not matter."""
    with resources.files("fedul.data").joinpath("digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        pixels, labels, names = stored["X"], stored["y"].astype(np.int64), stored["class_names"]
    inputs = torch.from_numpy(pixels.reshape(-1, 1, 8, 8))  # (5620, 1, 8, 8)
    return LabelledData(
        train_inputs=inputs[:TRAIN_ROWS],
        train_labels=labels[:TRAIN_ROWS],
        test_inputs=inputs[TRAIN_ROWS:],
        test_labels=labels[TRAIN_ROWS:],
        classes=tuple(str(name) for name in names),
        scaling=Scaling(scale=1 / 16),
    )
