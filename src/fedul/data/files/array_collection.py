"""Arrays in one .npz file: X (rows, ...), set and, if there are several clients, client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedul.config import FileDataConfig
from fedul.core import Scaling, Schema
from fedul.data.arrays import read_npz
from fedul.data.files.assign import SINGLE_CLIENT, NamedCodes
from fedul.data.files.signature import DataSignature
from fedul.errors import InputError

REMEDY = "give X (rows, ...), set (rows) and client (rows)"


class ArrayCollection:
    """The rows of an .npz file."""

    labels: NamedCodes | None = None

    def __init__(self, path: Path, config: FileDataConfig) -> None:
        self.source = str(path)
        for option in ("label_column", "truth_column", "ignore_columns", "category_columns"):
            if getattr(config, option):
                raise InputError(f"{option.replace('_', '-')}: is for tables; an .npz file has no columns.")
        set_, client = config.set_column or "set", config.client_column or "client"
        stored = read_npz(path, ["X", set_, *filter(None, [config.client_column])], REMEDY, optional=[client])
        self._rows = stored["X"]
        dtype = self._rows.dtype
        if self._rows.ndim < 2 or dtype.kind not in "iuf":
            raise InputError(f"{path}: X holds {dtype} of shape {self._rows.shape}; {REMEDY}, where X holds numbers.")
        self.sets = self._parse_names(path, stored[set_], set_)
        self.clients = NamedCodes((SINGLE_CLIENT,), np.zeros(len(self._rows), np.int64))
        if client in stored:
            self.clients = self._parse_names(path, stored[client], client)

    def _parse_names(self, path: Path, values: NDArray[Any], name: str) -> NamedCodes:
        if values.shape != (len(self._rows),) or values.dtype.kind not in "iuUS":
            raise InputError(
                f"{path}: {name} holds {values.dtype} of shape {values.shape}; give a name or a whole number for each "
                f"of {len(self._rows)} rows."
            )
        words, codes = np.unique(values, return_inverse=True)
        names = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in words.tolist()]
        return NamedCodes(tuple(names), codes.astype(np.int64))

    def describe_row(self, number: int) -> str:
        return f"{self.source}, row {number + 1}"

    def signature(self, train: NDArray[np.bool_]) -> DataSignature:
        scaling = Scaling(1 / 255) if self._rows.dtype == np.uint8 else Scaling()
        return DataSignature("array", shape=self._rows.shape[1:], scaling=scaling)

    def encode(self, schema: Schema | None) -> torch.Tensor:
        if self._rows.dtype == np.uint8:
            return torch.from_numpy(self._rows)
        rows = self._rows.astype(np.float32, copy=False)
        if not np.isfinite(rows).all():
            bad = int(np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))[0])
            raise InputError(
                f"{self.describe_row(bad)}: has a value that is missing or infinite; fill it or drop the row."
            )
        return torch.from_numpy(rows)
