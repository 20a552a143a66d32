"""`fedul.compare`: methods and algorithms on the same federations, with several seeds.

A comparison is a folder: `comparison.json` records what is compared, ``runs/VARIANT/seed-N`` are ordinary run folders.
Finished runs are not repeated, so a comparison that was interrupted can be resumed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedul._utils.settings import build_config, refuse_unknown, to_dict, with_underscores
from fedul.config import IN_MEMORY, BenchmarkDataConfig, CompareConfig, FileDataConfig, TrainConfig
from fedul.core import Study
from fedul.data.load import AnyDataConfig, resolve_data_config, with_absolute_paths
from fedul.errors import InputError, wrong_type
from fedul.experiments.comparison_record import RECORD, ComparisonRecord, open_folder, stored_options
from fedul.experiments.comparison_result import ComparisonResult, VariantResult
from fedul.experiments.executors import make_executor
from fedul.experiments.grid import check_measured, collect_results, mark_best, run_grid
from fedul.experiments.measures import TEST_ERROR, check_measurable, collect_measured, measure_of, with_parts
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.experiments.variants import CHOSEN_BY_VARIANTS, Variant, needs_truth, parse_variants, without_truth
from fedul.training import Callback, CallbackList, Recipe, RunFolder, validate_run
from fedul.training.early_stopping import fix_rounds

RUNS = "runs"
TABLE = "runs.csv"
CURVES = "error-by-round.svg"
PLOT = "comparison.svg"
"""Plot of a comparison on a user's own data, where errors by round are not known."""


def compare(
    data: str | os.PathLike[str] | AnyDataConfig | Study | None = None,
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
    data : str, Path, BenchmarkDataConfig, FileDataConfig or Study, default="digits"
        A benchmark data set, by name or with all its settings, or your own table, images or arrays as for `fedul.load`.
        Of a study that `fedul.load` returned, the same files are loaded again, because every seed holds out other rows.
        Own data is compared by the error on held-out rows if `truth_column` names their classes. Else each run is
        trained three times without a third of the sets, and is measured by its loss on the sets left out
        (`fedul.training.left_out`).
    methods : str or sequence of str, optional
        Names, with options after a colon: "fedul,supervised:labels=0.1". Default: those of `CompareConfig`, without
        those that need labels for own data.
    algorithms : str or sequence of str, optional
        Names, as for methods. Default: "fedavg".
    seeds : int, default=3
        Number of seeds, counted from `seed`.
    out : str or Path, optional
        Folder of the comparison, which gets its runs, a table and a plot. Without it nothing is kept.
    resume : bool, default=False
        Continue the comparison in `out`, whose settings are the defaults; more seeds, methods or rounds may be asked
        for.
    jobs : int, optional
        Runs at the same time, each in its own process; 0 means one per core. Default: 1, and on Ray (`executor="ray"`)
        all that the cluster has room for.
    callbacks : sequence of Callback
        Called for every run.
    **settings
        Other fields of `CompareConfig` (executor, ray_address, csv, plot, force), of `BenchmarkDataConfig` (clients,
        sets, split, seed, ...) or `FileDataConfig` (priors, client_column, ...), and of `TrainConfig` (rounds, model,
        learning_rate, ...).

    Returns
    -------
    ComparisonResult
        Mean of what was measured, deviation and p-value of every variant.

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
    options = _data_options(data)
    options |= {**with_underscores(settings), "resume": resume}
    for name in ("data", "priors"):
        if isinstance(options.get(name), os.PathLike):
            options[name] = os.fspath(options[name])
        elif not isinstance(options.get(name), str | None):
            raise wrong_type(name, "a name or a path (write a DataFrame to a file)", options[name])
    for name, names in (("methods", methods), ("algorithms", algorithms)):
        if names is not None:
            each = [names] if isinstance(names, str) else names
            for one in each if isinstance(each, Sequence) else [each]:
                if not isinstance(one, str):
                    refusal = str(wrong_type(name, "names, as text or as a list", one)).removesuffix(".")
                    part = name.removesuffix("s")
                    raise InputError(
                        f"{refusal}; to compare your own {part}, register it as an entry point and give its name "
                        "(docs/extending/README.md, Entry points)."
                    )
            options[name] = ",".join(each)
    options |= {name: value for name, value in (("seeds", seeds), ("jobs", jobs)) if value is not None}
    if out is not None:
        options["out"] = str(out)
        if resume:
            options = {**stored_options(Path(out), options.get("data")), **options}
    if chosen := [name for name in CHOSEN_BY_VARIANTS if name in options]:
        raise InputError(f"{chosen[0].replace('_', '-')}: is what a comparison varies; use methods and algorithms.")
    config, data_config, training = _configs(options)
    return _run_comparison(config, data_config, fix_rounds(training), CallbackList(callbacks))


def _data_options(data: Any) -> dict[str, Any]:
    """Return data as options of `fedul.load`."""
    if isinstance(data, AnyDataConfig):
        return to_dict(data)
    if not isinstance(data, Study):
        return {} if data is None else {"data": data}
    if not data.origin or IN_MEMORY in (data.origin.get("data"), data.origin.get("priors")):
        raise InputError(
            "data: the study was not loaded from files, and every seed loads it anew; write its tables to files and "
            "load these."
        )
    return dict(data.origin)


def _configs(options: Mapping[str, Any]) -> tuple[CompareConfig, AnyDataConfig, TrainConfig]:
    """Return the configurations that options are for. Own data has absolute paths, and by default no truth methods."""
    data_kinds = (FileDataConfig, BenchmarkDataConfig)
    refuse_unknown("option", options, CompareConfig, *data_kinds, TrainConfig)

    def select(*kinds: type[Any]) -> dict[str, Any]:
        names = {f.name for kind in kinds for f in fields(kind)}
        return {name: value for name, value in options.items() if name in names}

    config = build_config(CompareConfig, select(CompareConfig))
    training = build_config(TrainConfig, select(TrainConfig))
    data = resolve_data_config(select(*data_kinds))
    if isinstance(data, FileDataConfig):
        data = resolve_data_config(with_absolute_paths(data))
        if "methods" not in options:
            config = replace(config, methods=without_truth(config.methods))
    return config, data, training


def _run_comparison(
    config: CompareConfig, data: AnyDataConfig, training: TrainConfig, callback: Callback
) -> ComparisonResult:
    variants, studies, measure = parse_variants(config.methods, config.algorithms), StudyCache(), measure_of(data)
    executor = make_executor(config.executor, jobs=config.jobs, ray_address=config.ray_address)
    csv_file, plot_file = _output_files(config, CURVES if measure is TEST_ERROR else PLOT)
    if measure is not TEST_ERROR and (labelled := [variant for variant in variants if needs_truth(variant.method)]):
        raise InputError(
            f"methods: '{labelled[0].method}' trains on true labels, which only benchmark data sets have; leave it out."
        )
    study, seeds = studies.of(data), range(data.seed, data.seed + config.seeds)
    for variant in variants:  # everything that can be wrong with any of them, before the first is run
        validate_run(study, Recipe(executor.checkable(variant.train_config(training))), force=config.force)
    messages = check_measurable(study, measure, seeds)
    fingerprint = "" if measure is TEST_ERROR else study.federation.fingerprint()
    del study  # another seed's may not fit into memory beside it
    with ExitStack() as stack:
        if config.out is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedul-compare-")))
        else:
            folder = Path(config.out)
            open_folder(folder, ComparisonRecord.of(config, data, training, fingerprint), resume=config.resume)
        for message in messages:
            callback.on_warning(message)
        cells = [
            [job for seed in seeds for job in with_parts(_job(folder, variant, seed, config, data, training))]
            for variant in variants
        ]
        # Seed by seed, so that a comparison that is interrupted has the same number of seeds of every variant.
        for _ in run_grid(cells, callback, executor=executor, seed_by_seed=True, studies=studies):
            pass
        results = [_collect(variant, jobs) for variant, jobs in zip(variants, cells, strict=True)]
    comparison = ComparisonResult(
        mark_best(results, labels_of_all=measure is not TEST_ERROR),
        data,
        training,
        None if config.out is None else folder,
        csv_file,
        plot_file,
    )
    if csv_file is not None:
        comparison.to_csv(csv_file)
    if plot_file is not None:
        comparison.plot(plot_file)
    return comparison


def _job(
    folder: Path, variant: Variant, seed: int, config: CompareConfig, data: AnyDataConfig, training: TrainConfig
) -> RunJob:
    return RunJob(
        variant.title if config.seeds == 1 else f"{variant.title}, seed {seed}",
        RunFolder(folder / RUNS / variant.folder / f"seed-{seed}"),
        replace(data, seed=seed),
        variant.train_config(replace(training, seed=seed)),
        config.force,
    )


def _collect(variant: Variant, jobs: Sequence[RunJob]) -> VariantResult:
    measure, folders = measure_of(jobs[0].data), [job.folder for job in jobs]
    if measure is not TEST_ERROR:
        return VariantResult(**vars(collect_measured(jobs)), variant=variant, measure=measure)
    collected = collect_results(folders, lambda _, result: (check_measured(result.test_error),))
    curves = tuple(tuple(metrics.test_error for metrics in folder.history()) for folder in folders)
    return VariantResult(**vars(collected), variant=variant, curves=curves)


def _output_files(config: CompareConfig, plot_name: str) -> tuple[Path | None, Path | None]:
    """Return where the table and the plot go; refuse files of the comparison itself and folders that do not exist."""
    folder = None if config.out is None else Path(config.out)
    table, plot = (
        Path(given) if given else folder and folder / name
        for given, name in ((config.csv, TABLE), (config.plot, plot_name))
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
