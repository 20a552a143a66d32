"""The workload that all simulators of `speed.py` run: data, network, order of rows, participants, final loss.

Everything follows from a `Workload` and fixed seeds, so that every simulator builds the same. All clients have the same
number of rows of each class. The method `supervised` of fedul, which corrects for the class mix of a client, is then
plain cross-entropy, as in the other simulators.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul import models
from fedul._utils.randomness import torch_generator
from fedul.data import find_source, read_source

CLASSES, SEED = 10, 0
CHECK_ROWS = 200
RANDOM_LABELS = 0.2
"""Share of image labels that cannot be learned, so that the loss stays informative however quick the rounds are."""


@dataclass(frozen=True)
class Workload:
    """Rounds of federated averaging."""

    title: str
    network: str  # mlp, pfl-cnn, small-cnn or paper-cnn
    clients: int
    rows: int  # per client
    batch: int
    optimizer: str = "sgd"
    rate: float = 0.1
    participants: int = 0  # clients per round; 0 means all
    width: int = 32  # of the mlp
    sets: int = 0  # per client; 0 means that labels are known

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """Read what `to_json` returned."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the workload as JSON, for the command line of a simulator."""
        return json.dumps(asdict(self))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return {"mlp": (64,), "pfl-cnn": (3, 32, 32)}.get(self.network, (1, 28, 28))

    @property
    def clients_per_round(self) -> int:
        """Client updates per round."""
        return self.participants or self.clients

    def client_name(self, client: int) -> str:
        """Return the name of a client; it keys the random numbers of fedul."""
        return f"{client:05d}"

    def participants_of(self, number: int) -> list[int]:
        """Return the clients of a round, in ascending order."""
        if not self.participants:
            return list(range(self.clients))
        chosen = torch.randperm(self.clients, generator=torch_generator(SEED, number, "cohort"))[: self.participants]
        return sorted(chosen.tolist())

    def row_order(self, number: int, client: int) -> Tensor:
        """Return the order of a client's rows in a round, as fedul draws it, so that all reach the same loss."""
        return torch.randperm(self.rows, generator=torch_generator(SEED, number, self.client_name(client)))

    def make_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        """Return a new local optimizer."""
        kind = torch.optim.SGD if self.optimizer == "sgd" else torch.optim.Adam
        return kind(module.parameters(), lr=self.rate, fused=True)


@dataclass(frozen=True, eq=False)
class Data:
    """The rows of all clients, one client after another."""

    inputs: Tensor  # (clients * rows, ...), floats or bytes
    labels: Tensor  # (clients * rows,)
    scale: float  # factor from stored inputs to network inputs
    source: str

    def client_rows(self, workload: Workload, client: int, order: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of a client, scaled for the network, and its labels, in this order."""
        at = order + client * workload.rows
        inputs = self.inputs[at]
        return (inputs if inputs.is_floating_point() else inputs.float() * self.scale), self.labels[at]


def build_network(workload: Workload) -> nn.Module:
    """Return the network with its initial weights."""
    factories = {"mlp": _mlp(workload.width), "pfl-cnn": _pfl_cnn}
    return models.build(factories.get(workload.network, workload.network), workload.shape, CLASSES, SEED)


def _mlp(width: int) -> models.Factory:
    def factory(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, classes))

    return factory


def _pfl_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network of pfl's CIFAR-10 benchmark: 1.6 million weights, most of them in one dense layer."""
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


def make_data(workload: Workload) -> Data:
    """Return the data of a workload: synthetic, or MNIST if it is found."""
    if workload.network == "mlp":
        return _table(workload)
    if workload.network in ("small-cnn", "paper-cnn") and (found := _mnist(workload)) is not None:
        return found
    return _images(workload)


def balanced_labels(workload: Workload) -> Tensor:
    """Return the labels of all rows: classes as balanced as possible at every client, in random order."""
    generator = torch_generator(SEED, "labels")
    one = torch.arange(workload.rows) % CLASSES
    return torch.cat([one[torch.randperm(workload.rows, generator=generator)] for _ in range(workload.clients)])


def with_random_labels(workload: Workload, labels: Tensor) -> Tensor:
    """Return the labels with a share of those of each client permuted; every class keeps its number of rows."""
    generator, result = torch_generator(SEED, "random labels"), labels.clone()
    count = round(RANDOM_LABELS * workload.rows)
    for first in range(0, len(labels), workload.rows):
        chosen = first + torch.randperm(workload.rows, generator=generator)[:count]
        result[chosen] = labels[chosen[torch.randperm(count, generator=generator)]]
    return result


def _table(workload: Workload) -> Data:
    """Return ten overlapping Gaussians in 64 dimensions."""
    generator = torch_generator(SEED, "table")
    labels = balanced_labels(workload)
    centres = 0.25 * torch.randn(CLASSES, *workload.shape, generator=generator)
    inputs = torch.randn(len(labels), *workload.shape, generator=generator)
    for part, label in zip(inputs.split(2**16), labels.split(2**16), strict=True):
        part += centres[label]
    return Data(inputs, labels, 1.0, "synthetic")


def _images(workload: Workload) -> Data:
    """Return images as bytes: a coarse pattern per class plus noise."""
    generator = torch_generator(SEED, "images")
    channels, height, width = workload.shape
    labels = balanced_labels(workload)
    coarse = 48 * torch.randn(CLASSES, channels, 4, 4, generator=generator)
    patterns = 128 + functional.interpolate(coarse, (height, width))
    inputs = torch.empty(len(labels), *workload.shape, dtype=torch.uint8)
    for part, label in zip(inputs.split(2_000), labels.split(2_000), strict=True):
        noise = 64 * torch.randn(part.shape, generator=generator)
        part.copy_((patterns[label] + noise).clamp_(0, 255))
    return Data(inputs, with_random_labels(workload, labels), 1 / 255, "synthetic")


def _mnist(workload: Workload) -> Data | None:
    """Return balanced rows of MNIST; None if neither FEDUL_DATA nor the user cache has it."""
    if not find_source("mnist"):
        return None
    whole = read_source("mnist", None)
    labels = balanced_labels(workload)
    truth = torch.from_numpy(whole.train_labels)
    at = torch.empty_like(labels)
    for k in range(CLASSES):
        wanted = torch.nonzero(labels == k).flatten()
        at[wanted] = torch.nonzero(truth == k).flatten()[: len(wanted)]
    return Data(whole.train_inputs[at], with_random_labels(workload, labels), whole.scaling.scale, "MNIST")


@torch.no_grad()
def check_outputs(data: Data, module: nn.Module) -> list[float]:
    """Return the logits of a global model for the first rows, as one list, in the precision of its weights.

    All simulators must agree on them after the first round, where rounding has hardly been amplified yet.
    """
    inputs = data.inputs[:CHECK_ROWS]
    module.train()  # running statistics of batch norm are far off after a few steps
    saved = {name: buffer.clone() for name, buffer in module.named_buffers()}
    logits = module(inputs if inputs.is_floating_point() else inputs.float() * data.scale)
    for name, buffer in module.named_buffers():
        buffer.copy_(saved[name])
    return [float(value) for value in logits.flatten()]
