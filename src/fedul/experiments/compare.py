"""`fedul.compare`: methods and algorithms on the same federations, with several seeds.

A comparison is a folder: `comparison.json` records what is compared, ``runs/VARIANT/seed-N`` are ordinary run folders.
Finished runs are not repeated, so a comparison that was interrupted can be resumed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul._utils.documents import Document
from fedul._utils.files import require_unused, write_json
from fedul._utils.hardware import available_cores
from fedul._utils.settings import build_configs, to_dict
from fedul.config import BenchmarkDataConfig, CompareConfig, TrainConfig
from fedul.errors import InputError, wrong_type
from fedul.experiments.comparison_result import ComparisonResult, VariantResult
from fedul.experiments.grid import check_measured, collect_results, mark_best, run_grid
from fedul.experiments.job_pool import RunJob, StudyCache
from fedul.experiments.variants import CHOSEN_BY_VARIANTS, Variant, parse_variants
from fedul.training import Callback, CallbackList, Recipe, RunFolder, read_versioned, settings_difference, validate_run
from fedul.training.early_stopping import fix_rounds

FORMAT = "fedul-comparison"
VERSION = 2
RECORD = "comparison.json"
RUNS = "runs"
TABLE = "runs.csv"
PLOT = "error-by-round.svg"


def compare(
    data: str | BenchmarkDataConfig | None = None,
    *,
    methods: str | Sequence[str] | None = None,
    algorithms: str | Sequence[str] | None = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> ComparisonResult:
    """Compare methods and algorithms on one federation over several seeds, with a paired t-test.

    Parameters
    ----------
    data : str or BenchmarkDataConfig, default="digits"
        A benchmark data set, by name or with all its settings.
    methods : str or sequence of str, optional
        Names, with options after a colon: "fedul,supervised:labels=0.1". Default: all methods.
    algorithms : str or sequence of str, optional
        Names, as for methods. Default: "fedavg".
    seeds : int, default=3
        Number of seeds, counted from `seed`.
    out : str or Path, optional
        Folder of the comparison, which gets its runs, a table and a plot. Without it nothing is kept.
    resume : bool, default=False
        Continue the comparison in `out`, whose settings are the defaults; more seeds, methods or rounds may be asked
        for.
    jobs : int, default=1
        Runs at the same time, each in its own process; 0 means one per core.
    callbacks : sequence of Callback
        Called for every run.
    **settings
        Other fields of `CompareConfig` (csv, plot, force), of `BenchmarkDataConfig` (clients, sets, split, seed, ...)
        and of `TrainConfig` (rounds, model, learning_rate, ...).

    Returns
    -------
    ComparisonResult
        Mean error, deviation and p-value of every variant.

    Raises
    ------
    InputError
        If a setting is wrong, or `out` holds something else.

    Examples
    --------
    >>> import fedul
    >>> result = fedul.compare("digits", methods="fedul,fedllp", seeds=1, rounds=1, clients=2, rows=400)
    >>> [each["method"] for each in result.to_dict()["results"]]
    ['fedul', 'fedllp']
    """
    options = to_dict(data) if isinstance(data, BenchmarkDataConfig) else {} if data is None else {"data": data}
    options |= {**settings, "resume": resume}
    for name, names in (("methods", methods), ("algorithms", algorithms)):
        if names is not None:
            each = [names] if isinstance(names, str) else names
            if not isinstance(each, Sequence) or not all(isinstance(one, str) for one in each):
                raise wrong_type(name, "names, as text or as a list", names)
            options[name] = ",".join(each)
    options |= {name: value for name, value in (("seeds", seeds), ("jobs", jobs)) if value is not None}
    if out is not None:
        options["out"] = str(out)
        if resume and (stored := _read_record(Path(out))) is not None:
            options = {**stored.options, **options}
    if chosen := [name for name in CHOSEN_BY_VARIANTS if name in options]:
        raise InputError(f"{chosen[0].replace('_', '-')}: is what a comparison varies; use methods and algorithms.")
    config, data_config, training = build_configs(options, CompareConfig, BenchmarkDataConfig, TrainConfig)
    return _run_comparison(config, data_config, fix_rounds(training), CallbackList(callbacks))


def _run_comparison(
    config: CompareConfig, data: BenchmarkDataConfig, training: TrainConfig, callback: Callback
) -> ComparisonResult:
    variants, studies = parse_variants(config.methods, config.algorithms), StudyCache()
    csv_file, plot_file = _output_files(config)
    for variant in variants:  # everything that can be wrong with any of them, before the first is run
        validate_run(studies.of(data), Recipe(variant.train_config(training)), force=config.force)
    with ExitStack() as stack:
        if config.out is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedul-compare-")))
        else:
            folder = Path(config.out)
            _open_folder(folder, _Record.of(config, data, training), resume=config.resume)
        cells = [
            [_job(folder, variant, seed, config, data, training) for seed in range(data.seed, data.seed + config.seeds)]
            for variant in variants
        ]
        parallel = config.jobs or available_cores()
        # Seed by seed, so that a comparison that is interrupted has the same number of seeds of every variant.
        for _ in run_grid(cells, callback, parallel=parallel, seed_by_seed=True, studies=studies):
            pass
        results = [_collect(variant, jobs) for variant, jobs in zip(variants, cells, strict=True)]
    comparison = ComparisonResult(
        mark_best(results), data, training, None if config.out is None else folder, csv_file, plot_file
    )
    if csv_file is not None:
        comparison.to_csv(csv_file)
    if plot_file is not None:
        comparison.plot(plot_file)
    return comparison


def _job(
    folder: Path, variant: Variant, seed: int, config: CompareConfig, data: BenchmarkDataConfig, training: TrainConfig
) -> RunJob:
    return RunJob(
        variant.title if config.seeds == 1 else f"{variant.title}, seed {seed}",
        RunFolder(folder / RUNS / variant.folder / f"seed-{seed}"),
        replace(data, seed=seed),
        variant.train_config(replace(training, seed=seed)),
        config.force,
    )


def _collect(variant: Variant, jobs: Sequence[RunJob]) -> VariantResult:
    folders = [job.folder for job in jobs]
    collected = collect_results(folders, lambda _, result: (check_measured(result.test_error),))
    curves = tuple(tuple(metrics.test_error for metrics in folder.history()) for folder in folders)
    return VariantResult(**vars(collected), variant=variant, curves=curves)


def _output_files(config: CompareConfig) -> tuple[Path | None, Path | None]:
    """Return where the table and the plot go; refuse files of the comparison itself and folders that do not exist."""
    folder = None if config.out is None else Path(config.out)
    table, plot = (
        Path(given) if given else folder and folder / name for given, name in ((config.csv, TABLE), (config.plot, PLOT))
    )
    for name, file in (("csv", table), ("plot", plot)):
        if file is None:
            continue
        place = file.resolve()
        if folder is not None and (
            place.is_relative_to((folder / RUNS).resolve()) or place == (folder / RECORD).resolve()
        ):
            raise InputError(f"{name}: '{file}' belongs to the comparison itself; name another file.")
        if not file.parent.is_dir() and (folder is None or place.parent != folder.resolve()):
            raise InputError(f"{name}: there is no folder '{file.parent}'; make it, or name another file.")
    if table is not None and plot is not None and table.resolve() == plot.resolve():
        raise InputError(f"csv and plot: both are '{table}'; name two files.")
    return table, plot


@dataclass(frozen=True)
class _Record(Document):
    """What a comparison compares: the document `comparison.json`."""

    data: BenchmarkDataConfig
    training: TrainConfig
    methods: str
    algorithms: str
    seeds: int

    @classmethod
    def of(cls, config: CompareConfig, data: BenchmarkDataConfig, training: TrainConfig) -> _Record:
        return cls(replace(data, data_dir=None), training, config.methods, config.algorithms, config.seeds)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that all variants share."""
        training = {key: value for key, value in to_dict(self.training).items() if key not in CHOSEN_BY_VARIANTS}
        return {**to_dict(self.data), **training}

    @property
    def options(self) -> dict[str, Any]:
        """Options of `compare` that give this comparison."""
        return {**self.settings, "methods": self.methods, "algorithms": self.algorithms, "seeds": self.seeds}


def _read_record(folder: Path) -> _Record | None:
    """Return what the comparison in a folder compares; None if there is none yet."""
    file, kind = folder / RECORD, ("comparison", "compare again")
    if not file.exists():
        return None
    return read_versioned(_Record, file, FORMAT, VERSION, kind, "choose another --out")


def _open_folder(folder: Path, record: _Record, *, resume: bool) -> None:
    """Write the record into the folder; a folder that holds something else is refused and not changed."""
    stored = _read_record(folder)
    if stored is None:
        require_unused(folder, "--out", "exists already and is not a comparison of fedul")
    elif difference := settings_difference(stored.settings, record.settings):
        raise InputError(f"{folder}: holds a different comparison ({difference}); choose another --out.")
    elif record.training.rounds < stored.training.rounds:
        raise InputError(
            f"{folder}: already has {stored.training.rounds} rounds; ask for at least as many with --rounds."
        )
    elif not resume:
        raise InputError(
            f"{folder}: already holds this comparison; add --resume to continue it, or choose another --out."
        )
    write_json(folder / RECORD, {"format": FORMAT, "version": VERSION, **record.to_dict()})
