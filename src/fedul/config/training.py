"""Options of training: what clients minimise, how their updates are combined, and where they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedul._utils.settings import option, parse_batch_size, parse_name_values, validate_fields
from fedul.config.privacy import PrivacyOptions
from fedul.config.schedule import SCHEDULES, rate_share
from fedul.config.shared import SCORES, seed_option
from fedul.errors import InputError

GENERIC: Mapping[str, Any] = {
    "algorithm": "fedavg",
    "optimizer": "adam",
    "learning_rate": 3e-3,
    "l2": 0.0,
    "select": "held-out-loss",
}
"""Values of training settings that neither the user nor the method gives."""


@dataclass(frozen=True)
class TrainConfig(PrivacyOptions):
    """How a classifier is trained.

    Examples
    --------
    >>> from dataclasses import replace
    >>> config = TrainConfig(method="fedul", model="linear", rounds=5)
    >>> replace(config, rounds=10).rounds
    10
    >>> TrainConfig(rounds=-1)
    Traceback (most recent call last):
    fedul.errors.InputError: rounds: must be at least 0, got -1; change it, or leave it out.
    """

    method: str = option("fedul-combined", "What a client minimises.")
    method_option: Mapping[str, Any] = option(
        (), "A setting of the method, NAME=VALUE (repeatable).", parse=parse_name_values
    )
    choose: str = option(
        "auto",
        "Choose network, regularization and optimizer without labels, on sets left out, where the method offers a "
        "choice and they are not given; off takes the first of each.",
        choices=("auto", "off"),
    )
    algorithm: str | None = option(
        None, "How client updates become the next global model (default: chosen with the method, else fedavg)."
    )
    algorithm_option: Mapping[str, Any] = option(
        (), "A setting of the algorithm, NAME=VALUE (repeatable).", parse=parse_name_values
    )
    loss: str | None = option(
        None,
        "Score of the predicted set: -log Q (default), the Brier score, or the published code's second softmax.",
        choices=SCORES,
    )
    model: str = option(
        "auto",
        "Network: linear, small-mlp, mlp, small-cnn, paper-cnn, resnet9, resnet18, auto, or package.module:factory.",
    )
    start_weights: str | None = option(None, "Safetensors file with initial weights.")
    rounds: int = option(
        0, "Global rounds (0 = by the held-out loss, at most 80; 60 in comparisons and with --select last).", low=0
    )
    patience: int = option(
        0, "Stop when no round has been selected for N rounds (0 = never, but 15 without --rounds).", low=0
    )
    epochs: int = option(1, "Local epochs per round (E in the paper).", low=1)
    batch_size: int = option(32, "Rows per local step, or 'all'.", parse=parse_batch_size)
    optimizer: str | None = option(
        None,
        "Local optimizer; its state is reset every round (default: chosen with the method, else adam).",
        choices=("adam", "sgd"),
    )
    learning_rate: float | None = option(None, "Local learning rate (default: that of the method, else 0.003).", low=0)
    schedule: str = option(
        "constant",
        "Learning rate over the rounds: constant, triangular (rises in the first fifth, then falls) or cosine (falls).",
        choices=SCHEDULES,
    )
    momentum: float = option(0.0, "Momentum of sgd.", low=0, high=0.999)
    nesterov: bool = option(False, "Whether the momentum of sgd is Nesterov's.")
    l1: float = option(0.0, "Weight of the L1 penalty.", low=0)
    l2: float | None = option(
        None, "Weight of the L2 penalty on weight matrices (default: chosen with the method, else 0).", low=0
    )
    averaging: float = option(
        0.5,
        "Decay of the moving average over rounds that is delivered as the model (0 = no averaging).",
        low=0,
        high=0.999,
    )
    augment: str = option(
        "none", "Random augmentation of training images.", choices=("none", "rotate", "flip", "flip-crop")
    )
    participation: float = option(1.0, "Share of the clients that participate in each round.", above=0, high=1)
    select: str | None = option(
        None,
        "Round that is delivered: the last one whose held-out loss is as good as the best (needs no labels), "
        "the one with the lowest error on labels, or the last (default: chosen with the method, else held-out-loss).",
        choices=("held-out-loss", "held-out-error", "last"),
    )
    evaluate_every: int = option(1, "Rounds between two test errors, if there are labels (0 = at the end).", low=0)
    checkpoint_every: int = option(0, "Write a checkpoint every N rounds (0 = every 2 seconds).", low=0)
    device: str = option("auto", "Device; auto uses a GPU if there is one.")
    precision: str = option(
        "auto",
        "Precision of convolutions and matrix products; weights stay in float32. auto is bfloat16 where the hardware "
        "has it and the network is large enough to gain; float16 is for GPUs.",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    threads: int = option(
        0, "Threads for computation (0 = automatic: all cores for large networks only).", low=0, high=1024
    )
    engine_mode: str = option(
        "auto",
        "How clients train: in a loop, vectorized into one computation, or whichever is faster.",
        choices=("auto", "loop", "vectorized"),
    )
    workers: int = option(0, "Clients, or groups of them, that train in parallel (0 = automatic).", low=0, high=1024)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        self.check_privacy()
        if self.is_private and (self.select not in (None, "last") or self.patience):
            name = "patience" if self.select in (None, "last") else f"select {self.select}"
            raise InputError(
                f"{name}: compares rounds on held-out rows, which protected rows or clients do not allow; the last "
                "round is delivered, so leave it out and give --rounds."
            )
        if self.momentum and self.optimizer != "sgd":
            raise InputError("momentum: is for sgd, not for adam; add --optimizer sgd, or leave it out.")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov: is a form of momentum, which is 0; add --momentum 0.9, or leave it out.")

    @property
    def selection(self) -> str:
        """How the round is selected, also where it is not given."""
        return str(self.select or ("last" if self.is_private else GENERIC["select"]))

    @property
    def algorithm_name(self) -> str:
        """Algorithm, also where none is given."""
        return str(self.algorithm or GENERIC["algorithm"])

    @property
    def optimizer_name(self) -> str:
        """Local optimizer, also where none is given."""
        return str(self.optimizer or GENERIC["optimizer"])

    @property
    def rate(self) -> float:
        """Local learning rate, also where none is given."""
        return float(GENERIC["learning_rate"] if self.learning_rate is None else self.learning_rate)

    def rate_in(self, number: int) -> float:
        """Return the local learning rate of a round, from 1; the number of rounds must be known for a schedule."""
        return self.rate * rate_share(self.schedule, number, self.rounds)

    def resolved(self) -> TrainConfig:
        """Return the configuration with the values of `GENERIC` for settings that are not given."""
        generic = {**GENERIC, "select": self.selection}
        return replace(self, **{name: value for name, value in generic.items() if getattr(self, name) is None})

    def participants(self, clients: int) -> int:
        """Return the number of clients that participate in a round."""
        return max(1, round(self.participation * clients))
