"""`fedul.train`: the entry point, where data, method, algorithm and engine meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from fedul._utils.extensions import explain_extensions
from fedul._utils.hardware import torch_threads
from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import Federation, Study
from fedul.engines.held_out import Reference
from fedul.engines.simulation.engine import SimulationEngine
from fedul.engines.simulation.joint import joint_runs
from fedul.engines.simulation.shared_inputs import SharedInputs
from fedul.errors import InputError
from fedul.methods.base import Method
from fedul.models import Model
from fedul.training.callbacks import Callback, CallbackList, RunInfo
from fedul.training.choice import Choice
from fedul.training.deliver import deliver
from fedul.training.divergence import check_diverged, first_weights
from fedul.training.lockstep import complete_runs, join_engines
from fedul.training.prepare import PreparedRun, prepare_run
from fedul.training.recipe import Recipe
from fedul.training.result import DataCounts, Run, RunResult
from fedul.training.rounds import RunContext, iterate_rounds
from fedul.training.run_folder import RunFolder
from fedul.training.state import TrainingState
from fedul.training.status_writer import StatusWriter, client_table
from fedul.training.steps import RunSteps, complete

EXTENSIONS = {"method": Method, "algorithm": Algorithm, "callback": Callback}
"""What others write, and what raises errors that are not those of fedul."""


def train(
    data: Study | Federation,
    config: TrainConfig | None = None,
    *,
    method: str | Method | None = None,
    algorithm: str | Algorithm | None = None,
    model: Model | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Run:
    """Train a classifier across the clients of a federation.

    Parameters
    ----------
    data : Study or Federation
        What `fedul.load` returns, or a federation made from arrays.
    config : TrainConfig, optional
        The configuration; `settings` override it.
    method : str or Method, optional
        What a client minimises: a name (``fedul methods`` lists them) or an object.
    algorithm : str or Algorithm, optional
        How updates become the next global model: a name (``fedul algorithms``) or an object.
    model : str, nn.Module or callable, optional
        A name, a network, or a factory ``(shape, classes) -> nn.Module``.
    out : str or Path, optional
        Run folder. Without it nothing is written.
    resume : bool, default=False
        Continue the run in `out`, or start it. A run with objects needs the same objects again.
    force : bool, default=False
        Train even if the class priors cannot tell the classes apart.
    callbacks : sequence of Callback
        Called during the run. Without a callback for them, warnings are Python's own.
    **settings
        Fields of `TrainConfig`: rounds, learning_rate, seed, ...

    Returns
    -------
    Run
        The classifier, the metrics of every round, and the result.

    Raises
    ------
    InputError
        If the data or a setting is wrong.

    Examples
    --------
    >>> import fedul
    >>> run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, seed=0)
    >>> run.labels_used
    0
    """
    if resume and out is None:
        raise InputError("resume: needs out, the folder of the run to continue.")
    recipe = Recipe.of(config, settings, method=method, algorithm=algorithm, model=model)
    callback = CallbackList(callbacks)
    return run_training(
        data, recipe, out=out, resume=resume, force=force, callback=callback, info=RunInfo(0), refuse_diverged=True
    )


def run_training(
    data: Study | Federation,
    recipe: Recipe,
    *,
    out: str | Path | None,
    resume: bool,
    force: bool,
    callback: Callback,
    info: RunInfo,
    refuse_diverged: bool = False,
) -> Run:
    """Train as `train` does, as one of several runs that `info` describes; it may be one that diverged."""
    folder = None if out is None else RunFolder(out)
    with (
        nullcontext() if folder is None else folder.reserved(),
        nullcontext() if folder is None else StatusWriter(folder.path) as status,
        explain_extensions(EXTENSIONS),
    ):
        if status is not None:
            callback = CallbackList([callback, status])
        run = prepare_run(data, recipe, train_parts, folder=folder, resume=resume, force=force, callback=callback)
        if status is not None:
            status.table = partial(client_table, run.context)
        with torch_threads(run.threads):
            return complete(_train_steps(run, callback, info, refuse_diverged=refuse_diverged))


def train_parts(
    parts: Iterable[Federation],
    recipe: Recipe,
    infos: Iterable[RunInfo],
    callback: Callback,
    *,
    resume: bool = False,
) -> Iterator[Run]:
    """Train a run on each part of a federation, and yield the runs in their order.

    Where the network can be vectorized, the clients of several runs train as one. The results are those of each run
    alone, up to rounding.

    Parameters
    ----------
    parts : iterable of Federation
        The parts, which may overlap. They are read when they are trained.
    recipe : Recipe
        The settings of all runs.
    infos : iterable of RunInfo
        The runs, for the callback; their `folder` is the run folder.
    callback : Callback
        Called for every run.
    resume : bool, default=False
        Whether runs in their folders are continued.
    """
    left = zip(parts, infos, strict=True)

    def prepare(part: Federation, info: RunInfo, shared: SharedInputs) -> tuple[PreparedRun, RunInfo]:
        folder = None if info.folder is None else RunFolder(info.folder)
        made = prepare_run(
            part,
            recipe,
            train_parts,
            folder=folder,
            resume=resume,
            force=True,
            callback=callback,
            shared_inputs=shared,
        )
        return made, info

    for part, info in left:
        with explain_extensions(EXTENSIONS):
            shared = SharedInputs()
            group = [prepare(part, info, shared)]
            engine = group[0][0].context.engine
            count = joint_runs(engine) if isinstance(engine, SimulationEngine) else 1
            group += [prepare(other, its_info, shared) for other, its_info in islice(left, count - 1)]
            joint = join_engines([run.context.engine for run, _ in group])
            same = 1 if joint is None else len(group)
            steps = [_train_steps(run, callback, replace(info, joint_runs=same)) for run, info in group]
            alone = group[0][0].threads
            with torch_threads(alone if joint is None else joint.threads(alone)):
                runs = complete_runs(steps, joint)
        yield from runs


def _train_steps(
    run: PreparedRun, callback: Callback, info: RunInfo, *, refuse_diverged: bool = False
) -> RunSteps[Run]:
    """Train a prepared run, step by step."""
    context, config, folder, choice, federation = run.context, run.recipe.config, run.folder, run.choice, run.federation
    opened = nullcontext() if folder is None else folder.opened(run.record, resume=run.resume, perturbed=run.perturbed)
    with opened as state:
        if folder is not None and choice is not None:
            folder.save_choice(choice)
        counts, labels_used = DataCounts.of(federation), context.method.labels_used(federation)
        start = first_weights(context) if refuse_diverged and not config.is_private else None
        info = replace(info, record=run.record)
        finished = yield from complete_steps(
            context, config, state, folder, callback, info, counts, labels_used, run.study, choice, start
        )
        return replace(finished, recipe=run.recipe, record=run.record)


def complete_steps(
    context: RunContext,
    config: TrainConfig,
    state: TrainingState | None,
    folder: RunFolder | None,
    callback: Callback,
    info: RunInfo,
    counts: DataCounts,
    labels_used: int,
    study: Study | None = None,
    choice: Choice | None = None,
    start: Reference | None = None,
    finish: Callable[[Run], None] | None = None,
) -> RunSteps[Run]:
    """Run the rounds that are missing, and deliver the classifier of the selected round, step by step.

    With `start`, a run that diverged is refused. `finish` is called with the finished run before `on_run_end`, to write
    what else belongs into its folder. The callback's `on_run_end` is called in any case, with None if the run fails or
    is interrupted.
    """
    info = replace(
        info,
        rounds=config.rounds,
        patience=config.patience,
        folder=None if folder is None else folder.path,
        history=() if state is None else tuple(state.history),
        warn=callback.on_warning,
    )
    result: RunResult | None = None
    try:
        request = callback.on_run_start(info)
        stop = "" if request is None else request.reason
        last = yield from iterate_rounds(context, config, state, folder, callback, info, stop)
        check_diverged(start, last, context, config, callback)
        for message in context.method.final_warnings(last.history):
            callback.on_warning(message)
        run = deliver(context, last, folder, counts, labels_used, study, choice, config)
        if finish is not None:
            finish(run)
        result = run.result
        return run
    except BaseException as problem:
        info = replace(info, failure=problem)
        raise
    finally:
        callback.on_run_end(info, result)
