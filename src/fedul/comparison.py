"""Methods and algorithms side by side: the same federations, several seeds, one run folder for each run.

A comparison is a folder: comparison.json says what is compared, runs/NAME/seed-N/ are runs like any other. Runs that
are finished are not done again, so a comparison that was killed goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedul.algorithms import ALGORITHMS
from fedul.config import CompareConfig, DataConfig, TrainConfig
from fedul.errors import InputError, unknown
from fedul.files import read_json, write_json
from fedul.hardware import cores
from fedul.jobs import Job, Studies, Watcher, run_all
from fedul.methods import METHODS
from fedul.runs import RunFolder, first_difference
from fedul.settings import make, name_values, plain
from fedul.training import check_run

FORMAT = "fedul-comparison"
VERSION = 1
LEVEL = 0.05
"""Below this p-value of the paired t-test a contestant counts as worse than the best."""


@dataclass(frozen=True)
class Contestant:
    """A method under an algorithm, each with its settings."""

    method: str
    algorithm: str = "fedavg"
    method_option: Mapping[str, Any] = field(default_factory=dict)
    algorithm_option: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method_name(self) -> str:
        """The method with its settings: 'supervised labels=0.1'."""
        return " ".join([self.method, *(f"{k}={v}" for k, v in self.method_option.items())])

    @property
    def algorithm_name(self) -> str:
        return " ".join([self.algorithm, *(f"{k}={v}" for k, v in self.algorithm_option.items())])

    @property
    def title(self) -> str:
        """The method, and the algorithm unless it is the usual one."""
        return self.method_name if self.algorithm_name == "fedavg" else f"{self.method_name} {self.algorithm_name}"

    @property
    def folder(self) -> str:
        """A folder name."""
        return f"{self.method_name} under {self.algorithm_name}".replace(" ", "_").replace("/", "-")


def contestants(methods: str, algorithms: str) -> list[Contestant]:
    """Every method under every algorithm, from 'fedul,supervised:labels=0.1' and 'fedavg,fedprox:mu=0.1'.

    >>> [c.folder for c in contestants("fedul,supervised:labels=0.1", "fedavg")]
    ['fedul_under_fedavg', 'supervised_labels=0.1_under_fedavg']
    """
    methods_given, algorithms_given = _named("methods", methods, METHODS), _named("algorithms", algorithms, ALGORITHMS)
    made = [Contestant(m, a, dict(mo), dict(ao)) for a, ao in algorithms_given for m, mo in methods_given]
    seen = [contestant.folder for contestant in made]
    if twice := [c for c in made if seen.count(c.folder) > 1]:
        raise InputError(f"methods: '{twice[0].title}' is named twice; name it once, or give it other settings.")
    return made


def _named(what: str, text: str, known: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, *settings = part.split(":")
        if name not in known:
            raise unknown(what.removesuffix("s"), name, known)
        try:
            found.append((name, name_values(settings)))
        except ValueError as problem:
            raise InputError(f"{what}: expected NAME or NAME:{problem}, got '{part}'.") from None
    if not found:
        raise InputError(f"{what}: names none; give one or more of {', '.join(known)}, separated by commas.")
    return found


@dataclass(frozen=True)
class Result:
    """What one contestant came to over the seeds."""

    contestant: Contestant
    errors: tuple[float, ...]  # one for each seed
    seconds: float  # a run, on average
    labels_used: int  # on average
    curves: tuple[tuple[float | None, ...], ...]  # test error by round, for each seed
    p_value: float | None = None  # of a paired t-test against the best without labels; None for the best itself
    marked: bool = False  # the best without labels, or not significantly worse

    @property
    def mean(self) -> float:
        return math.fsum(self.errors) / len(self.errors)

    @property
    def deviation(self) -> float:
        """Standard deviation over seeds; 0 for one seed."""
        if len(self.errors) < 2:
            return 0.0
        return math.sqrt(math.fsum((e - self.mean) ** 2 for e in self.errors) / (len(self.errors) - 1))

    def summary(self) -> dict[str, Any]:
        """The figures, as `fedul compare --json` prints them."""
        return {
            "method": self.contestant.method_name,
            "algorithm": self.contestant.algorithm_name,
            "labels_used": self.labels_used,
            "mean_error": self.mean,
            "std": self.deviation,
            "errors": list(self.errors),
            "p_value": self.p_value,
            "best": self.marked,
            "seconds": self.seconds,
        }


def compare(
    data: DataConfig,
    training: TrainConfig,
    compared: CompareConfig,
    out: Path,
    watcher: Watcher,
) -> list[Result]:
    """Runs what is not there yet, and compares. Seeds count from the one in `data`."""
    entrants, seeds, force = contestants(compared.methods, compared.algorithms), compared.seeds, compared.force
    studies = Studies()
    for contestant in entrants:  # everything that can be wrong about any of them, before the first is run
        check_run(studies.of(data), force=force, **_settings(training, contestant))
    asked = {name: getattr(compared, name) for name in ("methods", "algorithms", "seeds")}
    chosen_there = ("method", "method_option", "algorithm", "algorithm_option", "seed")
    record = {
        "data": {key: value for key, value in plain(data).items() if key != "data_dir"},
        "training": {key: value for key, value in plain(training).items() if key not in chosen_there},
        "compared": asked,
    }
    _open(out, record, resume=compared.resume)
    last = data.seed + seeds
    # Seed by seed, so that a comparison that is stopped half-way has as many seeds of everybody.
    jobs = [
        Job(
            contestant.title if seeds == 1 else f"{contestant.title}, seed {seed}",
            _run_of(out, contestant, seed),
            replace(data, seed=seed),
            make(TrainConfig, _settings(replace(training, seed=seed), contestant)),
            force,
        )
        for seed in range(data.seed, last)
        for contestant in entrants
    ]
    for _ in run_all(jobs, watcher, at_once=compared.jobs or cores(), studies=studies):
        pass
    return judged([_result(c, [_outcome(_run_of(out, c, seed)) for seed in range(data.seed, last)]) for c in entrants])


def _run_of(out: Path, contestant: Contestant, seed: int) -> RunFolder:
    return RunFolder(out / "runs" / contestant.folder / f"seed-{seed}")


def judged(results: Sequence[Result]) -> list[Result]:
    """The results with the best method without labels marked, and all that are not significantly worse."""
    without = [r for r in results if not r.labels_used]
    if not without:
        return list(results)
    best = min(without, key=lambda r: r.mean)
    return [r if r.labels_used else _against(r, best) for r in results]


def _against(result: Result, best: Result) -> Result:
    if result is best:
        return replace(result, marked=True)
    p_value = paired_p_value(result.errors, best.errors)
    return replace(result, p_value=p_value, marked=p_value is not None and p_value >= LEVEL)


def paired_p_value(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Of the two-sided paired t-test; None where one seed alone says nothing.

    >>> paired_p_value([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]), paired_p_value([0.1], [0.2])
    (1.0, None)
    """
    if len(one) < 2:
        return None
    differences = [a - b for a, b in zip(one, other, strict=True)]
    if max(differences) == min(differences):  # no spread: the test would divide by zero
        return 1.0 if differences[0] == 0 else 0.0
    from scipy.stats import ttest_rel

    return float(ttest_rel(one, other).pvalue)


Outcome = tuple[dict[str, Any], list[dict[str, Any]]]
"""What a run came to, and the figures of its rounds."""


def stored_options(out: Path) -> dict[str, Any]:
    """What the comparison in a folder was asked for, by name; nothing if there is none yet."""
    file = out / "comparison.json"
    if not file.exists():
        return {}
    stored = read_json(file)
    good = isinstance(stored, dict) and (stored.get("format"), stored.get("version")) == (FORMAT, VERSION)
    if not good or not all(isinstance(stored.get(section), dict) for section in ("data", "training", "compared")):
        raise InputError(f"{file}: is not of a comparison of this fedul; choose another --out.")
    return {**stored["data"], **stored["training"], **stored["compared"]}


def _open(out: Path, record: dict[str, Any], *, resume: bool) -> None:
    """Makes the folder ready; one that holds something else is refused, and nothing in it is touched."""
    file = out / "comparison.json"
    stored = stored_options(out)
    if not stored and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists already and is not a comparison of fedul; choose another --out.")
    if stored:
        sections = {"asked": {**record["data"], **record["training"]}}
        difference = first_difference({"asked": {key: stored.get(key) for key in sections["asked"]}}, sections)
        if difference:
            raise InputError(f"{out}: holds a different comparison ({difference}); choose another --out.")
        done = stored["rounds"]
        if record["training"]["rounds"] < done:
            raise InputError(f"{out}: has {done} rounds already; ask for at least as many with --rounds.")
        if not resume:
            raise InputError(
                f"{out}: already holds this comparison; add --resume to go on with it, or choose another --out."
            )
    write_json(file, {"format": FORMAT, "version": VERSION, **record})


def _settings(training: TrainConfig, contestant: Contestant) -> dict[str, Any]:
    return {**plain(training), **{f.name: getattr(contestant, f.name) for f in fields(contestant)}}


def _outcome(folder: RunFolder) -> Outcome:
    return folder.result() or {}, folder.history()


def _result(contestant: Contestant, outcomes: Sequence[Outcome]) -> Result:
    results = [result for result, _ in outcomes]
    return Result(
        contestant,
        errors=tuple(result["test_error"] for result in results),
        seconds=sum(result["seconds"] for result in results) / len(results),
        labels_used=round(sum(result["labels_used"] for result in results) / len(results)),
        curves=tuple(tuple(line.get("test_error") for line in history) for _, history in outcomes),
    )
