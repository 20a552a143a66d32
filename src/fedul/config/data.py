"""Options of data: benchmark data sets, and a user's own files."""

from __future__ import annotations

from dataclasses import dataclass

from fedul._utils.settings import option, parse_classes, parse_integers, parse_names, validate_fields
from fedul.config.shared import (
    NOISE_FORMULAS,
    PRIOR_RECIPES,
    TEST_PRIOR_HELP,
    held_out_option,
    priors_option,
    seed_option,
)
from fedul.errors import InputError


@dataclass(frozen=True)
class BenchmarkDataConfig:
    """A benchmark data set, and how it is partitioned into clients and sets.

    Examples
    --------
    >>> import fedul
    >>> study = fedul.load(fedul.BenchmarkDataConfig(data="digits", clients=3, sets=(10,), rows=600))
    >>> [client.name for client in study.federation.clients]
    ['client-1', 'client-2', 'client-3']
    """

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
    """A user's table or images, and the class priors of their sets.

    Examples
    --------
    >>> data = FileDataConfig(data="patients.csv", priors="prevalence.csv", set_column="month")
    >>> data.held_out, data.test_prior
    (0.2, 'natural')
    """

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
    public_columns: str | None = option(
        None,
        "TOML file with what is public about columns: low and high, or words. They become inputs by it, not by moments "
        "and words of the rows, which a private run does not cover.",
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
