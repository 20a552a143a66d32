"""`fedul.train`: the entry point, where data, method, algorithm and engine meet."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedul import models
from fedul._utils.display import counted
from fedul._utils.files import tensors_digest
from fedul._utils.hardware import default_threads, resolve_device, torch_threads
from fedul.algorithms.base import Algorithm
from fedul.classifier import Classifier
from fedul.config import TrainConfig
from fedul.core import Federation, Study, check_identifiability
from fedul.engines.client_store import ClientStore, MemoryStore
from fedul.engines.held_out import Reference
from fedul.engines.simulation.engine import SimulationEngine, move_to_device
from fedul.errors import InputError
from fedul.methods.base import Method
from fedul.models import Model
from fedul.models.weights import load_weights, precision_of, weights_of
from fedul.training.callbacks import Callback, CallbackList, RunInfo
from fedul.training.check_fit import check_fit
from fedul.training.choice import Choice, resolve_recipe
from fedul.training.divergence import check_diverged, first_weights
from fedul.training.recipe import Recipe
from fedul.training.resolve import resolve_run
from fedul.training.result import DataCounts, Run, RunResult
from fedul.training.rounds import RunContext, run_rounds
from fedul.training.run_folder import RunFolder
from fedul.training.run_record import RunRecord
from fedul.training.set_levels import held_out_levels
from fedul.training.state import TrainingState
from fedul.training.truth_metrics import calibration_error, test_error


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
    study = Study.of(data)
    federation = study.federation
    folder = None if out is None else RunFolder(out)
    recipe, choice = resolve_run(study, recipe, folder, callback, run_training)
    config = recipe.config
    context = _build_context(study, recipe, MemoryStore() if folder is None else folder.client_store())
    for message in [*study.warnings, *_startup_warnings(federation, context, config, force=force)]:
        callback.on_warning(message)
    decided = replace(config, model=context.model_name, precision=context.precision)
    record = RunRecord.of(decided, context.module, study.origin, federation.fingerprint())
    opened = nullcontext() if folder is None else folder.opened(record, resume=resume)
    with opened as state, torch_threads(config.threads or default_threads(context.module)):
        if folder is not None and choice is not None:
            folder.save_choice(choice)
        counts, labels_used = DataCounts.of(federation), context.method.labels_used(federation)
        start = first_weights(context) if refuse_diverged else None
        run = complete_run(context, config, state, folder, callback, info, counts, labels_used, study, choice, start)
        return replace(run, recipe=recipe, record=record)


def complete_run(
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
) -> Run:
    """Run the rounds that are missing, and deliver the classifier of the selected round.

    With `start`, a run that diverged is refused. The callback's `on_run_end` is called in any case, with None if the
    run fails or is interrupted.
    """
    info = replace(
        info,
        rounds=config.rounds,
        patience=config.patience,
        folder=None if folder is None else folder.path,
        history=() if state is None else tuple(state.history),
    )
    result: RunResult | None = None
    try:
        callback.on_run_start(info)
        last = run_rounds(context, config, state, folder, callback, info)
        check_diverged(start, last, context, config, callback)
        for message in context.method.final_warnings(last.history):
            callback.on_warning(message)
        run = _deliver(context, last, folder, counts, labels_used, study, choice)
        result = run.result
        return run
    finally:
        callback.on_run_end(info, result)


def validate_run(data: Study, recipe: Recipe, *, force: bool = False) -> None:
    """Raise what `train` would raise before its first round; nothing is trained or written."""
    recipe = resolve_recipe(recipe, recipe.make_method(data.truth), data.federation, None)
    context = _build_context(data, recipe, MemoryStore())
    _startup_warnings(data.federation, context, recipe.config, force=force)


def _startup_warnings(federation: Federation, context: RunContext, config: TrainConfig, *, force: bool) -> list[str]:
    """Warnings before the first round; priors that cannot tell the classes apart are refused."""
    try:
        messages = list(check_identifiability(federation, pooled=context.method.pools_sets))
    except InputError as problem:
        if not force and not context.method.needs_truth:
            raise
        messages = [str(problem).partition(";")[0] + "."]
    clients = config.participants(len(federation.clients))
    messages += context.method.startup_warnings(config.rounds)
    messages += context.algorithm.startup_warnings(weights_of(context.module), clients)
    return [*messages, *context.engine.warnings]


def _build_context(study: Study, recipe: Recipe, store: ClientStore) -> RunContext:
    """Build the parts of a run and check everything that can be wrong with them."""
    federation, truth, config = study.federation, study.truth, recipe.config
    if config.selection == "held-out-error" and truth is None:
        raise InputError("select held-out-error: needs labels, and this federation has none; use held-out-loss.")
    if config.selection != "last" and not federation.columns.held_out_rows.any():
        largest = int(federation.columns.set_rows.max())
        raise InputError(
            f"no rows are held out to select the round by (the largest set has {counted(largest, 'row')}); merge small "
            "sets, hold out a larger share (--held-out), or use --select last (select='last')."
        )
    name = models.resolve(config.model, federation.input_shape) if recipe.model is None else "custom"
    model, classes = name if recipe.model is None else recipe.model, len(federation.classes)
    module = models.build(model, federation.input_shape, classes, config.seed, federation.test_prior)
    method = recipe.make_method(truth)
    check_fit(federation, module, method, config)
    if config.start_weights:
        models.load_start_weights(module, config.start_weights)
    algorithm = recipe.make_algorithm()
    device = resolve_device(config.device)
    module.to(device)
    federation = move_to_device(federation, device, precision_of(module))
    engine = SimulationEngine(federation, method, algorithm, module, config, store)
    labelled = None if truth is None else Study(federation, truth)
    return RunContext(federation.spec, labelled, module, name, method, algorithm, engine, store, engine.precision)


def _deliver(
    context: RunContext,
    state: TrainingState,
    folder: RunFolder | None,
    counts: DataCounts,
    labels_used: int,
    study: Study | None,
    choice: Choice | None,
) -> Run:
    """Build the result of a run after its last round, and write it into its folder if it has one."""
    spec, truth = context.spec, context.study.truth if context.study else None
    selected = state.history[state.selected_round - 1]
    load_weights(context.module, state.selected)
    pooled, by_client = None, list[float]()
    if truth is not None:
        pooled, by_client = test_error(context.module, truth, spec.scaling)
    classifier = Classifier(
        context.module.cpu(),
        context.model_name,
        tuple(spec.classes),
        spec.input_shape,
        spec.test_prior,
        spec.scaling,
        temperature=selected.temperature,
        schema=spec.schema,
        site_adjustments=None if study is None else study.federation.site_adjustments,
    )
    if study is not None:
        classifier = replace(classifier, set_levels=held_out_levels(study.federation, classifier))
    calibration = None
    if truth is not None:
        probabilities = classifier.without_adjustments().predict_proba(truth.test_inputs)
        calibration = calibration_error(probabilities, truth.test_labels)
    result = RunResult(
        rounds=len(state.history),
        selected_round=state.selected_round,
        held_out_loss=selected.held_out_loss,
        labels_used=labels_used,
        weights_sha256=tensors_digest(state.weights),
        data=counts,
        seconds=round(sum(metrics.seconds for metrics in state.history), 3),
        test_error=pooled,
        test_error_clients=sum(by_client) / len(by_client) if by_client else None,
        test_errors=tuple(by_client),
        calibration_error=calibration,
        choice=choice,
    )
    sites = _site_classifiers(context.algorithm, classifier, state)
    if folder is not None:
        folder.save_classifiers(classifier, sites)
        folder.save_result(result)
    return Run(
        classifier, state.history, result, None if folder is None else folder.path, study, site_classifiers=sites
    )


def _site_classifiers(algorithm: Algorithm, classifier: Classifier, state: TrainingState) -> dict[str, Classifier]:
    """Return the classifiers of clients that keep a part of the model."""
    classifiers = {}
    for name, own in state.selected_sites.items():
        module = copy.deepcopy(classifier.module)
        load_weights(module, algorithm.start(dict(state.selected), dict(own)))
        pooled = classifier if classifier.site_adjustments is None else classifier.for_site(name)
        classifiers[name] = replace(pooled, module=module)
    return classifiers
