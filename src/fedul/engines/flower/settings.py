"""Configuration classes of runs on Flower: the coordinator, and a site."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from fedul._utils.settings import option, parse_names, validate_fields
from fedul.config.tracking import TrackingConfig, experiment_option, track_option, tracking_uri_option
from fedul.errors import InputError

ADDRESS = re.compile(r"([^][:/@\s]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}", re.ASCII)


def parse_class_names(value: Any) -> tuple[str, ...]:
    """Return names as `parse_names` does, but refuse an empty one.

    >>> parse_class_names("flu,,cold")
    Traceback (most recent call last):
    ValueError: names of classes, none of them empty, separated by commas
    """
    names = parse_names(value)
    count = len(value.split(",")) if isinstance(value, str) and value.strip() else len(value)
    if len(names) < count:
        raise ValueError("names of classes, none of them empty, separated by commas")
    return names


@dataclass(frozen=True)
class CoordinatorConfig:
    """Options of the coordinator of a run on Flower, beside those of training."""

    out: str = option("", "Run folder, on the coordinator's machine (an absolute path).")
    resume: bool = option(False, "Continue the run in out, or start it if there is none.")
    classes: tuple[str, ...] = option(
        (),
        "Classes, separated by commas; the priors of every site have exactly these: --classes flu,cold.",
        parse=parse_class_names,
    )
    test_prior: str = option(
        "uniform",
        "Class mix of the population that the classifier is for: uniform, 'A=0.1,B=0.9', or, with secure-aggregation, "
        "natural: that of all training rows.",
    )
    class_mix: str | None = option(
        None,
        "Class mix of the rows of all sites, if it is known: 'A=0.1,B=0.9'. Sites then learn from how they differ.",
    )
    site_adjustment: bool = option(False, "Whether each site standardises its rows as if it had the test prior.")
    sites: int = option(2, "Sites to wait for before the first round.", low=1)
    min_sites: int = option(2, "Updates that a round needs; with fewer it is repeated.", low=1)
    start_seconds: float = option(600.0, "Seconds to wait for the sites before the first round.", above=0)
    round_seconds: float = option(
        600.0, "Seconds to wait for replies; a site that is late is left out of the round.", above=0
    )
    attempts: int = option(3, "Attempts at a round before the run ends with an error.", low=1)
    words: str | None = option(
        None,
        "Words of text columns that are used under secure aggregation, where sites disclose none: "
        "'smoker=never|former|current;ward=A|B'.",
    )
    roster: str | None = option(
        None,
        "File with the public keys of the sites (an absolute path); a site of another name or with another key is "
        "refused.",
    )
    max_rounds: int = option(
        0, "Rounds that the run declares to its sites, to be resumed with more rounds later (0 = rounds).", low=0
    )
    resumptions: int = option(10, "Times that the run may be resumed; sites refuse more.", low=0)

    track: str | None = track_option()
    tracking_uri: str | None = tracking_uri_option()
    experiment: str | None = experiment_option()

    def __post_init__(self) -> None:
        validate_fields(self)
        if not os.path.isabs(self.out):
            raise InputError(
                f"out: '{self.out}' is not an absolute path; Flower chooses the working directory of the coordinator."
            )
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise InputError("classes: give at least two, each once, separated by commas.")
        if self.min_sites > self.sites:
            raise InputError(f"min-sites: {self.min_sites} is more than the {self.sites} sites; give fewer.")
        if self.roster is not None and not os.path.isabs(self.roster):
            raise InputError(f"roster: '{self.roster}' is not an absolute path at the coordinator.")
        place = (self.tracking_uri or "").removeprefix("sqlite:///")
        if place and "://" not in place and not os.path.isabs(place):
            raise InputError(f"tracking-uri: '{place}' is not an absolute path at the coordinator.")
        self.tracking  # noqa: B018 (checks it)

    @property
    def tracking(self) -> TrackingConfig:
        """Whether and where the run is recorded."""
        return TrackingConfig(self.track, self.tracking_uri, self.experiment)


@dataclass(frozen=True)
class SiteConfig:
    """Options of a site. Its file also has a section [data] with options of `fedul train`."""

    name: str = option("", "Name of the site, which the coordinator sees.")
    state: str = option("state", "Folder for the state between rounds; it holds the encoded rows.")
    min_rows: int = option(20, "With fewer training rows the site does not participate.", low=1)
    max_message_mb: int = option(1024, "Size limit of received messages, in MB.", low=1)
    prior_epsilon: float | None = option(
        None,
        "Perturb the class priors before anything uses them: epsilon of the class of one row "
        "(docs/privacy/differential-privacy.md). They are drawn once and stored in the state folder.",
        low=1e-6,
    )
    row_epsilon: float | None = option(
        None,
        "Epsilon that the rows of this site may spend in all runs together "
        "(docs/privacy/differential-privacy.md). Runs without private rows are refused.",
        above=0,
    )
    row_delta: float = option(1e-5, "Delta of row-epsilon.", low=1e-12, high=0.1)
    superlink: str | None = option(None, "Address of the coordinator, HOST:PORT.")
    root_certificates: str | None = option(
        None, "File with the certificate of the authority that the coordinator uses (default: those of the system)."
    )
    require_secure_aggregation: bool = option(
        False, "Whether the site takes part only in runs with secure aggregation, where no number of its own leaves it."
    )
    min_cohort: int = option(3, "Fewest sites of a secure sum that the site takes part in.", low=3)
    key: str | None = option(None, "File with the private identity key of this site.")
    roster: str | None = option(None, "File with the public keys of all sites.")
    allow_methods: tuple[str, ...] = option(
        (), "Methods and algorithms of other packages that may run here, separated by commas.", parse=parse_names
    )

    def __post_init__(self) -> None:
        validate_fields(self)
        if not is_valid_site_name(self.name):
            raise InputError("name: the site needs a name of at most 100 printable characters.")
        if self.require_secure_aggregation and None in (self.key, self.roster):
            raise InputError(
                "require-secure-aggregation: needs the key of this site and the roster of all sites; give both (key, "
                "roster)."
            )
        if self.superlink is not None and not _is_address(self.superlink):
            raise InputError(
                f"superlink: '{self.superlink}' is not an address; give HOST:PORT without https://, such as "
                "coordinator.example.org:8443."
            )
        if self.row_delta != SiteConfig.row_delta and self.row_epsilon is None:
            raise InputError("row-delta: limits nothing without row-epsilon; add it.")


def _is_address(text: str) -> bool:
    """Return whether a text is HOST:PORT; an IPv6 address is in brackets."""
    return bool(ADDRESS.fullmatch(text)) and 0 < int(text.rpartition(":")[2]) < 2**16


def is_valid_site_name(name: Any) -> bool:
    """Return whether a name is printable and short enough for messages and pages."""
    return isinstance(name, str) and bool(name.strip()) and name.isprintable() and len(name) <= 100
