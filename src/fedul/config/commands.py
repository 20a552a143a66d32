"""Options of the commands `train` and `compare` as a whole."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fedul._utils.settings import option, validate_fields
from fedul.config.shared import force_option, json_option
from fedul.errors import InputError

EXECUTORS = ("processes", "ray")
"""Where the runs of a grid may be trained."""
EXECUTOR_HELP = "Where runs are trained: in processes of this machine, or as tasks of a Ray cluster."
RAY_ADDRESS_HELP = "HOST:PORT of a Ray cluster (default: the variable RAY_ADDRESS, else a local Ray is started)."
SCALES = ("paper", "laptop", "smoke")
"""Scales of `fedul reproduce`."""
EXPORT_FORMATS = ("onnx", "card")
"""Formats of `fedul export`."""


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
class CompareConfig:
    """Options of `fedul compare`."""

    methods: str = option(
        "fedul-combined, fedul, fedul-refined, fedpl, fedllp, fedllp-vat, supervised, supervised:labels=0.1",
        "Methods, separated by commas; settings follow a colon (supervised:labels=0.1).",
    )
    algorithms: str = option("fedavg", "Algorithms, separated by commas (fedavg,fedprox:mu=0.1).")
    seeds: int = option(3, "Number of seeds, counted from --seed.", low=1)
    jobs: int | None = option(
        None,
        "Concurrent runs, each in its own process (0 = one per core; default: 1, on Ray all that it has room for).",
        low=0,
        high=1024,
    )
    executor: str = option(EXECUTORS[0], EXECUTOR_HELP, choices=EXECUTORS)
    ray_address: str | None = option(None, RAY_ADDRESS_HELP)
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
        check_executor(self.executor, self.ray_address)
        check_plot(self.plot)
        if self.csv is not None and os.path.isdir(self.csv):
            raise InputError(f"csv: '{self.csv}' is a folder; name a file.")


def check_plot(file: str | None) -> None:
    """Raise InputError if the name of a plot is no name of an SVG or PNG file."""
    if file is None:
        return
    if not file.endswith((".svg", ".png")):
        raise InputError(f"plot: '{file}' is neither .svg nor .png.")
    if os.path.isdir(file):
        raise InputError(f"plot: '{file}' is a folder; name a file.")


def check_executor(executor: str, ray_address: str | None) -> None:
    """Raise InputError if an address is given to an executor that takes none."""
    if ray_address is not None and executor != "ray":
        raise InputError("ray-address: is for --executor ray; add it, or leave the address out.")
