"""The work that the contestants of `speed.py` race over: data, network, order of rows, cohorts, and the final loss.

Everything follows from a `Work` and fixed seeds, so that every contestant makes the same for itself. Every client has
as many rows of each class: there fedul's `supervised` method, which corrects for a client's class mix, is plain
cross-entropy, which is what all others minimise.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul import data, models
from fedul.randomness import torch_generator

CLASSES, SEED = 10, 0
JUDGED = 4_000  # rows of large images that the final loss is over: all 50,000 would take longer than the race


@dataclass(frozen=True)
class Work:
    """Rounds of federated averaging: who trains what, and how."""

    title: str
    network: str  # mlp, pfl-cnn, small-cnn or paper-cnn
    clients: int
    rows: int  # a client
    batch: int
    optimizer: str = "sgd"
    rate: float = 0.1
    cohort: int = 0  # clients a round; 0 means all
    width: int = 32  # of the mlp
    sets: int = 0  # a client; 0 means that its labels are known

    @classmethod
    def read(cls, text: str) -> Work:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def shape(self) -> tuple[int, ...]:
        return {"mlp": (64,), "pfl-cnn": (3, 32, 32)}.get(self.network, (1, 28, 28))

    @property
    def a_round(self) -> int:
        """Client updates a round."""
        return self.cohort or self.clients

    def name_of(self, client: int) -> str:
        return f"{client:05d}"

    def cohort_of(self, number: int) -> list[int]:
        """The clients of a round, ascending."""
        if not self.cohort:
            return list(range(self.clients))
        chosen = torch.randperm(self.clients, generator=torch_generator(SEED, number, "cohort"))[: self.cohort]
        return sorted(chosen.tolist())

    def order(self, number: int, client: int) -> Tensor:
        """In which order a client takes its rows in a round: as fedul draws it, so that all end at the same loss."""
        return torch.randperm(self.rows, generator=torch_generator(SEED, number, self.name_of(client)))

    def optimizer_for(self, module: nn.Module) -> torch.optim.Optimizer:
        maker = torch.optim.SGD if self.optimizer == "sgd" else torch.optim.Adam
        return maker(module.parameters(), lr=self.rate, fused=True)


@dataclass(frozen=True, eq=False)
class Data:
    """All clients' rows, one client after the other."""

    inputs: Tensor  # (clients * rows, ...), floats or bytes
    labels: Tensor  # (clients * rows,)
    scale: float  # from what is stored to what the network sees
    source: str

    def rows_of(self, work: Work, client: int, order: Tensor) -> tuple[Tensor, Tensor]:
        """A client's inputs, ready for the network, and labels, in this order."""
        at = order + client * work.rows
        inputs = self.inputs[at]
        return (inputs if inputs.is_floating_point() else inputs.float() * self.scale), self.labels[at]


def network(work: Work) -> nn.Module:
    """The network with its start weights."""
    own = {"mlp": _mlp(work.width), "pfl-cnn": _pfl_cnn}
    return models.build(own.get(work.network, work.network), work.shape, CLASSES, SEED)


def _mlp(width: int) -> models.Factory:
    def factory(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, classes))

    return factory


def _pfl_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of pfl's CIFAR-10 benchmark: 1.6 million weights, nearly all in one dense layer."""
    layers = OrderedDict(
        conv1=nn.Conv2d(shape[0], 32, 3),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 64, 3),
        relu2=nn.ReLU(),
        pool=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        hidden=nn.Linear(64 * 14 * 14, 128),
        relu3=nn.ReLU(),
        head=nn.Linear(128, classes),
    )
    return nn.Sequential(layers)


def make_data(work: Work) -> Data:
    if work.network == "mlp":
        return _table(work)
    if work.network in ("small-cnn", "paper-cnn") and (found := _mnist(work)) is not None:
        return found
    return _images(work)


def balanced_labels(work: Work) -> Tensor:
    """Labels of all rows, as many of each class at every client as there can be, in random order."""
    generator = torch_generator(SEED, "labels")
    one = torch.arange(work.rows) % CLASSES
    return torch.cat([one[torch.randperm(work.rows, generator=generator)] for _ in range(work.clients)])


def _table(work: Work) -> Data:
    """Ten Gaussians in 64 dimensions, near enough to each other that no network gets all rows right."""
    generator = torch_generator(SEED, "table")
    labels = balanced_labels(work)
    centres = 0.25 * torch.randn(CLASSES, *work.shape, generator=generator)
    inputs = torch.randn(len(labels), *work.shape, generator=generator)
    for part, label in zip(inputs.split(2**16), labels.split(2**16), strict=True):
        part += centres[label]
    return Data(inputs, labels, 1.0, "synthetic")


def _images(work: Work) -> Data:
    """Bytes, as image files hold them: a coarse pattern for each class under noise."""
    generator = torch_generator(SEED, "images")
    channels, height, width = work.shape
    labels = balanced_labels(work)
    coarse = 48 * torch.randn(CLASSES, channels, 4, 4, generator=generator)
    patterns = 128 + functional.interpolate(coarse, (height, width))
    inputs = torch.empty(len(labels), *work.shape, dtype=torch.uint8)
    for part, label in zip(inputs.split(2_000), labels.split(2_000), strict=True):
        noise = 64 * torch.randn(part.shape, generator=generator)
        part.copy_((patterns[label] + noise).clamp_(0, 255))
    return Data(inputs, labels, 1 / 255, "synthetic")


def _mnist(work: Work) -> Data | None:
    """The first rows of MNIST that give every client as many of each class; None where MNIST is not found."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = os.environ.get("FEDUL_DATA") or str(beside)
    if not data.found("mnist", folder):
        return None
    whole = data.read("mnist", folder)
    labels = balanced_labels(work)
    truth = torch.from_numpy(whole.train_labels)
    at = torch.empty_like(labels)
    for k in range(CLASSES):
        wanted = torch.nonzero(labels == k).flatten()
        at[wanted] = torch.nonzero(truth == k).flatten()[: len(wanted)]
    return Data(whole.train_inputs[at], labels, whole.scaling.scale, "MNIST")


@torch.no_grad()
def training_loss(work: Work, rows: Data, module: nn.Module) -> float:
    """Mean cross-entropy of a global model over the training rows: what all contestants must agree about.

    Batch norm takes each batch's own statistics: after a few steps the running ones are far off, and tell nothing.
    """
    module.train()
    count = min(len(rows.labels), JUDGED) if work.network == "pfl-cnn" else len(rows.labels)
    total = 0.0
    for at in torch.arange(count).split(500):
        inputs = rows.inputs[at] if rows.inputs.is_floating_point() else rows.inputs[at].float() * rows.scale
        total += float(functional.cross_entropy(module(inputs), rows.labels[at], reduction="sum"))
    return total / count
