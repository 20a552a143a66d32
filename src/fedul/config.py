"""The configuration: one typed tree, every default written once. `settings` says how it is read and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedul.errors import InputError
from fedul.settings import batch_rows, check, name_values, names, option, whole_numbers


@dataclass(frozen=True)
class RunConfig:
    """What `fedul train` does with the run as a whole."""

    out: str | None = option(None, "Run folder (default: a new one under runs/).")
    resume: bool = option(False, "Go on with the run in --out, or start it.")
    force: bool = option(False, "Train even if the class priors cannot tell the classes apart.")
    json: bool = option(False, "Print one JSON document.")

    def __post_init__(self) -> None:
        check(self)
        if self.resume and self.out is None:
            raise InputError("--resume needs --out, the folder of the run to go on with.")


@dataclass(frozen=True)
class DataConfig:
    """Which research data, and how it is dealt out to clients and sets."""

    data: str = option("digits", "Data set ('fedul datasets' lists them), or a table or images of your own.")
    data_dir: str | None = option(None, "Folder with data files (default: FEDUL_DATA, then the user cache).")
    rows: int = option(0, "Use only so many training rows, drawn at random (0 = all).", low=0)
    clients: int = option(5, "Number of clients.", low=1)
    sets: tuple[int, ...] = option(
        (10,), "Sets a client: one number, or one for each client (10,20,30,40,50).", parse=whole_numbers
    )
    split: str = option(
        "iid",
        "How clients differ: alike; two majority classes as the paper counts them; or as its text words it.",
        choices=("iid", "noniid", "noniid-text"),
    )
    prior_recipe: str = option(
        "boosted",
        "Random class priors: as the paper's published code draws them, or as its text says.",
        choices=("boosted", "text"),
    )
    priors: str | None = option(
        None, "Table of class priors (client,set,CLASS...); for a data set, what the sets are dealt by."
    )
    prior_source: str = option(
        "realised",
        "Priors told to the clients: the sets' realised class shares, or the ones they were drawn with.",
        choices=("realised", "drawn"),
    )
    prior_noise: float = option(0.0, "Noise EPS on the priors told to the clients (0 = exact).", low=0)
    noise_formula: str = option(
        "intended",
        "Noise formula: as the paper means it, or as it is printed.",
        choices=("intended", "printed"),
    )
    sets_overlap: bool = option(True, "Sets of a client may share rows (as published), or are disjoint.")
    validation: float = option(0.2, "Share of the rows held out before sets are formed.", low=0, high=0.9)
    test_prior: str = option(
        "uniform", "Class mix of the test population: uniform, natural, 'A=0.1,B=0.9' for all classes, or a file."
    )
    seed: int = option(0, "Seed of everything random.", low=0)

    def __post_init__(self) -> None:
        check(self)
        if min(self.sets) < 1:
            raise InputError("sets: a client needs at least one set.")
        if len(self.sets) not in (1, self.clients):
            raise InputError(f"sets: {len(self.sets)} numbers for {self.clients} clients; give one, or one a client.")


@dataclass(frozen=True)
class OwnDataConfig:
    """A table or images of your own, and the class priors of their sets."""

    data: str = option(
        "", "A table (.csv, .parquet), a folder or pattern of tables, images (client/set/file), or .npz."
    )
    priors: str | None = option(None, "Table of class priors (client,set,CLASS...).")
    priors_unit: str = option(
        "auto",
        "What the priors are; auto takes what leaves no doubt.",
        choices=("auto", "proportions", "percentages", "counts"),
    )
    client_column: str | None = option(None, "Column that names the client of a row (default: the file is the client).")
    set_column: str | None = option(None, "Column that names the set of a row (default: set).")
    label_column: str | None = option(None, "Column with the class of rows that are labelled, mostly empty.")
    truth_column: str | None = option(None, "Column with true classes, to compare with; never trained on.")
    ignore_columns: tuple[str, ...] = option((), "Columns that are no features, separated by commas.", parse=names)
    category_columns: tuple[str, ...] = option(
        (), "Columns whose numbers are codes, not quantities, separated by commas.", parse=names
    )
    image_size: int = option(0, "Pixels a side that images are brought to (0: as they are).", low=0, high=1024)
    validation: float = option(0.2, "Share of the rows held out before sets are formed.", low=0, high=0.9)
    test_prior: str = option("uniform", "Class mix of the population that the classifier is for.")
    seed: int = option(0, "Seed of everything random.", low=0)

    def __post_init__(self) -> None:
        check(self)
        if self.priors is None:
            raise InputError(f"{self.data}: needs --priors, a table with client,set and a column for each class.")


@dataclass(frozen=True)
class TrainConfig:
    """How the classifier is trained."""

    method: str = option("fedul", "What a client minimises.")
    method_option: Mapping[str, Any] = option(
        (), "A setting of the method, NAME=VALUE (repeatable).", parse=name_values
    )
    algorithm: str = option("fedavg", "How client updates become the next global model.")
    algorithm_option: Mapping[str, Any] = option(
        (), "A setting of the algorithm, NAME=VALUE (repeatable).", parse=name_values
    )
    loss: str | None = option(
        None,
        "Score of the predicted set: -log Q, the default of fedul; Brier's; or the published code's second softmax.",
        choices=("log", "brier", "authors"),
    )
    model: str = option("auto", "linear, mlp, small-cnn, paper-cnn, resnet18, auto, or package.module:factory.")
    start_weights: str | None = option(None, "Safetensors file with weights to start from.")
    rounds: int = option(30, "Global rounds.", low=1)
    epochs: int = option(1, "Local epochs a round (the paper's E).", low=1)
    batch_size: int = option(32, "Rows a local step, or 'all'.", parse=batch_rows)
    optimizer: str = option("adam", "Local optimiser, made anew every round.", choices=("adam", "sgd"))
    learning_rate: float = option(3e-3, "Local step size.", low=0)
    momentum: float = option(0.0, "Momentum of sgd.", low=0, high=0.999)
    l1: float = option(0.0, "Weight of the L1 penalty.", low=0)
    averaging: float = option(
        0.5,
        "How much each round counts beside the next in the mean over rounds that is delivered (0 = none).",
        low=0,
        high=0.999,
    )
    augment: str = option("none", "Random changes to training images.", choices=("none", "rotate", "flip", "flip-crop"))
    participation: float = option(1.0, "Share of the clients that take part in a round.", above=0, high=1)
    select: str = option(
        "held-out",
        "Which round is delivered: the last that held-out rows cannot tell from the best (no label needed), "
        "the one with the lowest labelled error, or the last.",
        choices=("held-out", "validation-error", "last"),
    )
    evaluate_every: int = option(
        1, "Measure the test error every N rounds, where labels exist (0 = at the end).", low=0
    )
    checkpoint_every: int = option(0, "Write a checkpoint every N rounds (0 = when 2 s have passed).", low=0)
    device: str = option("auto", "Where to compute: auto takes a GPU if there is one.")
    threads: int = option(0, "Threads for arithmetic (0 = one for small networks, else all cores).", low=0, high=1024)
    engine_mode: str = option(
        "auto",
        "How clients train: one after another, stacked into one computation, or what is quicker.",
        choices=("auto", "loop", "stacked"),
    )
    workers: int = option(
        0, "Clients, or stacks of them, that train side by side (0 = what is quickest).", low=0, high=1024
    )
    seed: int = option(0, "Seed of everything random.", low=0)

    def __post_init__(self) -> None:
        check(self)
        if self.momentum and self.optimizer != "sgd":
            raise InputError(f"momentum: {self.optimizer} has none of this kind; add --optimizer sgd, or leave it out.")

    def participants(self, clients: int) -> int:
        """How many of so many clients take part in a round."""
        return max(1, round(self.participation * clients))


@dataclass(frozen=True)
class CoordinatorConfig:
    """What the coordinator of a run on real sites decides, beside how the classifier is trained."""

    out: str = option("", "Run folder, on the coordinator's machine (an absolute path).")
    resume: bool = option(False, "Go on with the run in out, or start it.")
    classes: tuple[str, ...] = option(
        (), "The classes, separated by commas; every site's priors name just these.", parse=names
    )
    test_prior: str = option(
        "uniform", "Class mix of the population that the classifier is for: uniform, or 'A=0.1,B=0.9'."
    )
    sites: int = option(2, "Sites to wait for before the first round.", low=1)
    min_sites: int = option(2, "Updates without which a round is repeated.", low=1)
    start_seconds: float = option(600.0, "How long to wait for the sites before the first round.", above=0)
    round_seconds: float = option(600.0, "Time limit for the answers to a message; who is late is left out.", above=0)
    attempts: int = option(3, "How often a round is tried before the run ends with an error.", low=1)

    def __post_init__(self) -> None:
        check(self)
        if not os.path.isabs(self.out):
            raise InputError(f"out: '{self.out}' is no absolute path, and Flower runs the coordinator where it likes.")
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise InputError("classes: give at least two, each once, separated by commas.")
        if self.min_sites > self.sites:
            raise InputError(
                f"min-sites: {self.min_sites} of {self.sites} sites cannot be had; ask for fewer (min-sites)."
            )


@dataclass(frozen=True)
class SiteConfig:
    """What a site decides for itself; its file also has a part [data], with the options of `fedul train`."""

    name: str = option("", "The name of the site, as the coordinator sees it.")
    state: str = option("state", "Folder for what is kept here between rounds; it holds the rows as inputs.")
    min_rows: int = option(20, "With fewer training rows the site does not take part.", low=1)
    max_message_mb: int = option(1024, "The largest message that is read, in MB.", low=1)

    def __post_init__(self) -> None:
        check(self)
        if not readable(self.name):
            raise InputError("name: the site needs a name of at most 100 letters that can be printed.")


def readable(name: Any) -> bool:
    """Whether a site can be called so, in messages and on pages."""
    return isinstance(name, str) and bool(name.strip()) and name.isprintable() and len(name) <= 100


@dataclass(frozen=True)
class CompareConfig:
    """What `fedul compare` compares, and where it goes."""

    methods: str = option(
        "fedul, fedul-refined, fedpl, fedllp, fedllp-vat, supervised, supervised:labels=0.1",
        "Methods, separated by commas; a setting follows after a colon (supervised:labels=0.1).",
    )
    algorithms: str = option("fedavg", "Algorithms, separated by commas (fedavg,fedprox:mu=0.1).")
    seeds: int = option(3, "Number of seeds, counted from --seed.", low=1)
    jobs: int = option(1, "Runs at a time, each in a process of its own (0 = one a core).", low=0, high=1024)
    out: str | None = option(None, "Folder of the comparison (default: a new one under runs/).")
    resume: bool = option(False, "Go on with the comparison in --out; more seeds, methods or rounds may be asked for.")
    csv: str | None = option(None, "CSV to write, a line a run (default: runs.csv in the folder).")
    plot: str | None = option(None, "Plot of error by round, .svg or .png (default: error-by-round.svg in the folder).")
    force: bool = option(False, "Train even if the class priors cannot tell the classes apart.")
    json: bool = option(False, "Print one JSON document.")

    def __post_init__(self) -> None:
        check(self)
        if self.resume and self.out is None:
            raise InputError("--resume needs --out, the folder of the comparison to go on with.")
        if self.plot is not None and not self.plot.endswith((".svg", ".png")):
            raise InputError(f"plot: '{self.plot}' is neither .svg nor .png.")
        for name, file in (("csv", self.csv), ("plot", self.plot)):
            if file is not None and os.path.isdir(file):
                raise InputError(f"{name}: '{file}' is a folder; name a file.")
