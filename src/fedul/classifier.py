"""The deliverable: a classifier with honest probabilities, for its own population or, in closed form, for another.

Saved as a folder of two files, `classifier.json` and `weights.safetensors`; loading runs no code from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedul import models
from fedul.errors import InputError
from fedul.federation import Scaling
from fedul.files import read_json, read_tensors, write_json, write_tensors
from fedul.inputs import AT_ONCE
from fedul.models.weights import load_weights, weights_of
from fedul.priors import Matrix, validate_mix
from fedul.schema import Schema, from_plain

FORMAT = "fedul-classifier"
VERSION = 1
SHOWN = 12
"""Classes that a classifier names when it is printed."""


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """Maps rows, in the form they had in the federation, to class probabilities under `prior`."""

    module: nn.Module
    model: str  # a name of the registry, or "custom"
    classes: Sequence[str]
    input_shape: tuple[int, ...]
    trained_prior: Matrix  # (K,): the test prior of the federation
    scaling: Scaling = field(default_factory=Scaling)
    temperature: float = 1.0  # logits are divided by it
    prior: Matrix = None  # type: ignore[assignment]  # None means the trained one
    schema: Schema | None = None  # how tables or files become rows; None where rows are arrays from the start

    def __post_init__(self) -> None:
        if self.prior is None:
            object.__setattr__(self, "prior", self.trained_prior)

    def __repr__(self) -> str:
        shares = [f"{name} {share:.3g}" for name, share in zip(self.classes, self.prior, strict=True)]
        more = f" and {len(shares) - SHOWN} more" if len(shares) > SHOWN else ""
        return f"<Classifier ({self.model}) of {', '.join(shares[:SHOWN])}{more}>"

    def predict_proba(self, inputs: ArrayLike | Tensor, batch_size: int = AT_ONCE) -> NDArray[np.float64]:
        """Probabilities (n, K) of the classes for rows (n, ...)."""
        try:
            rows = inputs if isinstance(inputs, Tensor) else torch.as_tensor(np.asarray(inputs))
        except (TypeError, ValueError):
            raise InputError("rows are not a table of numbers; give an array (rows, ...).") from None
        if rows.ndim == 0 or tuple(rows.shape[1:]) != self.input_shape:
            if math.prod(rows.shape[1:]) == math.prod(self.input_shape) and rows.ndim >= 2:
                rows = rows.reshape(-1, *self.input_shape)  # e.g. flat pixels for an image model
            else:
                raise InputError(
                    f"rows of shape {tuple(rows.shape[1:])}, but this classifier takes {self.input_shape}; "
                    "give an array (rows, ...) of that shape."
                )
        with np.errstate(divide="ignore"):
            shift = torch.from_numpy(np.log(self.prior) - np.log(self.trained_prior))
        self.module.eval()
        parts = [torch.empty(0, len(self.classes), dtype=torch.float64)]
        first = next(self.module.parameters(), torch.empty(0))
        with torch.inference_mode():
            for part in torch.split(rows, batch_size):
                logits = self.module(self.scaling(part.to(first.device)).to(first.dtype)).double().cpu()
                parts.append(torch.softmax(logits / self.temperature + shift, dim=1))
        probabilities = torch.cat(parts).numpy()
        if not np.isfinite(probabilities).all():
            row = int(np.flatnonzero(~np.isfinite(probabilities).all(axis=1))[0])
            raise InputError(f"row {row + 1} gives no finite prediction; it holds missing, infinite or huge values.")
        return probabilities

    def predict(self, inputs: ArrayLike | Tensor, batch_size: int = AT_ONCE) -> NDArray[Any]:
        """The most probable class of each row, by name (n,)."""
        names: NDArray[Any] = np.asarray(self.classes)[self.predict_proba(inputs, batch_size).argmax(axis=1)]
        return names

    def with_prior(self, prior: ArrayLike) -> Classifier:
        """The same classifier for another class mix, in closed form: posteriors times new over old prior."""
        return replace(self, prior=validate_mix(prior, self.classes))

    def save(self, folder: str | Path) -> None:
        """Writes the classifier into a folder."""
        folder = Path(folder)
        description = {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "classes": list(self.classes),
            "input_shape": list(self.input_shape),
            "scaling": {"scale": self.scaling.scale, "shift": self.scaling.shift},
            "trained_prior": self.trained_prior.tolist(),
            "temperature": self.temperature,
            "prior": self.prior.tolist(),
            "schema": None if self.schema is None else self.schema.plain(),
        }
        # The description also stands in the weights file, under its digest: the two cannot be mixed up or altered.
        write_tensors(folder / "weights.safetensors", weights_of(self.module), description)
        write_json(folder / "classifier.json", description)

    @classmethod
    def load(cls, folder: str | Path, *, model: models.Model | None = None) -> Classifier:
        """Reads a classifier; one with a model of the user's own needs that model too (no code is stored)."""
        folder = Path(folder)
        description = read_json(folder / "classifier.json")
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise InputError(f"{folder}: not a classifier of fedul.")
        if description.get("version") != VERSION:
            raise InputError(
                f"{folder}: written in format {description.get('version')}, this program reads {VERSION}; "
                "use the version of fedul that wrote it."
            )
        tensors, sealed = read_tensors(folder / "weights.safetensors")
        if sealed != description:
            raise InputError(f"{folder}: classifier.json was altered or belongs to other weights; restore a copy.")
        shape, classes = tuple(description["input_shape"]), tuple(description["classes"])
        if model is None and description["model"] not in models.MODELS:
            raise InputError(f"{folder}: made with a model of the user's own; name it with --model (model=...).")
        module = models.build(description["model"] if model is None else model, shape, len(classes), seed=0)
        wanted = {name: tensor.shape for name, tensor in weights_of(module).items()}
        if wanted != {name: tensor.shape for name, tensor in tensors.items()}:
            raise InputError(f"{folder}: the weights do not fit the model '{description['model']}'.")
        load_weights(module, tensors)
        return cls(
            module,
            description["model"],
            classes,
            shape,
            np.array(description["trained_prior"]),
            Scaling(**description["scaling"]),
            float(description["temperature"]),
            np.array(description["prior"]),
            schema=from_plain(description.get("schema")),
        )
