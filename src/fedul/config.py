"""Configuration classes: every option, with its default, help text, choices and range.

The fields are documented by their help texts, which `fedul train --help` prints. `fedul._utils.settings` reads and
validates them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fedul._utils.settings import (
    option,
    parse_batch_size,
    parse_classes,
    parse_integers,
    parse_name_values,
    parse_names,
    validate_fields,
)
from fedul.errors import InputError

PRIOR_RECIPES = ("boosted", "text")
NOISE_FORMULAS = ("intended", "printed")
IN_MEMORY = "<DataFrame>"
"""Stands for the path of data or priors that were passed as a DataFrame."""
SCORES = ("log", "brier", "authors")
"""Losses between the predicted and the true set of a row."""

# Options of several configurations.
force_option = partial(option, False, "Train even if the class priors cannot tell the classes apart.")
held_out_option = partial(
    option, 0.2, "Share of the rows held out to select the best round, without labels.", low=0, high=0.9
)
json_option = partial(option, False, "Print one JSON document on standard output.")
seed_option = partial(option, 0, "Seed of all randomness.", low=0)
priors_option = partial(
    option, None, "Table of class priors (client,set,CLASS...). For a benchmark, the sets are drawn with these."
)
TEST_PRIOR_HELP = "Class mix that the classifier is for: natural (of all rows), uniform, 'A=0.1,B=0.9', or a file."


@dataclass(frozen=True)
class RunConfig:
    """Options of `fedul train` for the run as a whole."""

    out: str | None = option(None, "Run folder (default: a new one under runs/).")
    resume: bool = option(False, "Continue the run in --out, or start it if there is none.")
    force: bool = force_option()
    json: bool = json_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.resume and self.out is None:
            raise InputError("--resume needs --out, the folder of the run to continue.")


@dataclass(frozen=True)
class BenchmarkDataConfig:
    """A benchmark data set, and how it is partitioned into clients and sets."""

    data: str = option("digits", "Benchmark data set ('fedul datasets' lists them).")
    data_dir: str | None = option(None, "Folder with data files (default: FEDUL_DATA, then the user cache).")
    rows: int = option(0, "Number of training rows to use, drawn at random (0 = all).", low=0)
    clients: int = option(5, "Number of clients.", low=1)
    sets: tuple[int, ...] = option(
        (10,), "Sets per client: one number, or one for each client (10,20,30,40,50).", parse=parse_integers
    )
    split: str = option(
        "iid",
        "How clients differ: not at all, or by majority classes, as in the paper's experiments or as in its text.",
        choices=("iid", "noniid", "noniid-text"),
    )
    prior_recipe: str = option(
        "boosted", "Random class priors: as in the paper's published code, or as in its text.", choices=PRIOR_RECIPES
    )
    priors: str | None = priors_option()
    prior_source: str = option(
        "realised",
        "Priors that clients know: the class shares in their sets, or the priors that the sets were drawn with.",
        choices=("realised", "drawn"),
    )
    prior_noise: float = option(0.0, "Noise EPS on the priors that clients know (0 = exact).", low=0)
    noise_formula: str = option(
        "intended", "Noise formula: as the paper intends it, or as it is printed.", choices=NOISE_FORMULAS
    )
    sets_overlap: bool = option(True, "Whether sets of a client may share rows, as in the paper.")
    held_out: float = held_out_option()
    test_prior: str = option("uniform", TEST_PRIOR_HELP)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        if min(self.sets) < 1:
            raise InputError("sets: a client needs at least one set.")
        if len(self.sets) not in (1, self.clients):
            raise InputError(f"sets: {len(self.sets)} numbers for {self.clients} clients; give one, or one per client.")


@dataclass(frozen=True)
class FileDataConfig:
    """A user's table or images, and the class priors of their sets."""

    data: str = option(
        "",
        "Benchmark data set ('fedul datasets' lists them; default digits), or your own table (.csv, .parquet), images "
        "or .npz.",
    )
    priors: str | None = priors_option()
    priors_unit: str = option(
        "auto", "Unit of the priors; auto infers it.", choices=("auto", "proportions", "percentages", "counts")
    )
    priors_of: str = option(
        "auto",
        "What priors speak of: exactly the rows of a set, or their population; auto: rows, if counts add up to them.",
        choices=("auto", "rows", "population"),
    )
    classes: tuple[str, ...] = option(
        (), "Columns of priors that are classes (default: all); of two, one may have no column.", parse=parse_classes
    )
    client_column: str | None = option(None, "Column with the client of a row (default: each file is a client).")
    set_column: str | None = option(None, "Column with the set of a row (default: set).")
    label_column: str | None = option(
        None, "Column with the class of the rows that have a label; empty for all others."
    )
    truth_column: str | None = option(None, "Column with true classes, for comparison only; not used for training.")
    ignore_columns: tuple[str, ...] = option(
        (), "Columns that are not features, separated by commas.", parse=parse_names
    )
    category_columns: tuple[str, ...] = option(
        (), "Columns whose numbers are category codes, separated by commas.", parse=parse_names
    )
    site_adjustment: str = option(
        "off",
        "Standardise the rows of each client as if it had the test prior; auto if clients differ beyond their priors.",
        choices=("off", "on", "auto"),
    )
    image_size: int = option(0, "Resize images to this many pixels per side (0 = keep their size).", low=0, high=1024)
    held_out: float = held_out_option()
    test_prior: str = option("natural", TEST_PRIOR_HELP)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.priors is None:
            raise InputError(f"{self.data}: needs --priors, a table with client,set and a column for each class.")
        if self.set_column is not None and self.set_column == self.client_column:
            raise InputError(f"client-column and set-column: both are '{self.set_column}'; name two columns.")


GENERIC: Mapping[str, Any] = {
    "algorithm": "fedavg",
    "optimizer": "adam",
    "learning_rate": 3e-3,
    "l2": 0.0,
    "select": "held-out-loss",
}
"""Values of training settings that neither the user nor the method gives."""


@dataclass(frozen=True)
class TrainConfig:
    """How a classifier is trained."""

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
        "auto", "Network: linear, small-mlp, mlp, small-cnn, paper-cnn, resnet18, auto, or package.module:factory."
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
    momentum: float = option(0.0, "Momentum of sgd.", low=0, high=0.999)
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
    threads: int = option(0, "Threads for computation (0 = one for small networks, else all cores).", low=0, high=1024)
    engine_mode: str = option(
        "auto",
        "How clients train: in a loop, vectorized into one computation, or whichever is faster.",
        choices=("auto", "loop", "vectorized"),
    )
    workers: int = option(0, "Clients, or groups of them, that train in parallel (0 = automatic).", low=0, high=1024)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.momentum and self.optimizer != "sgd":
            raise InputError("momentum: is for sgd, not for adam; add --optimizer sgd, or leave it out.")

    @property
    def selection(self) -> str:
        """How the round is selected, also where it is not given."""
        return str(self.select or GENERIC["select"])

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

    def resolved(self) -> TrainConfig:
        """Return the configuration with the values of `GENERIC` for settings that are not given."""
        return replace(self, **{name: value for name, value in GENERIC.items() if getattr(self, name) is None})

    def participants(self, clients: int) -> int:
        """Return the number of clients that participate in a round."""
        return max(1, round(self.participation * clients))


@dataclass(frozen=True)
class CompareConfig:
    """Options of `fedul compare`."""

    methods: str = option(
        "fedul-combined, fedul, fedul-refined, fedpl, fedllp, fedllp-vat, supervised, supervised:labels=0.1",
        "Methods, separated by commas; settings follow a colon (supervised:labels=0.1).",
    )
    algorithms: str = option("fedavg", "Algorithms, separated by commas (fedavg,fedprox:mu=0.1).")
    seeds: int = option(3, "Number of seeds, counted from --seed.", low=1)
    jobs: int = option(1, "Concurrent runs, each in its own process (0 = one per core).", low=0, high=1024)
    out: str | None = option(None, "Folder of the comparison (default: a new one under runs/).")
    resume: bool = option(False, "Continue the comparison in --out; seeds, methods or rounds may be added.")
    csv: str | None = option(None, "CSV file to write, one line per run (default: runs.csv in the folder).")
    plot: str | None = option(None, "Plot to write, .svg or .png (default: in the folder of the comparison).")
    force: bool = force_option()
    json: bool = json_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.resume and self.out is None:
            raise InputError("--resume needs --out, the folder of the comparison to continue.")
        if self.plot is not None and not self.plot.endswith((".svg", ".png")):
            raise InputError(f"plot: '{self.plot}' is neither .svg nor .png.")
        for name, file in (("csv", self.csv), ("plot", self.plot)):
            if file is not None and os.path.isdir(file):
                raise InputError(f"{name}: '{file}' is a folder; name a file.")
