"""Coordinator of a run on real sites: from its settings to the same run folder as in process."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedul import models
from fedul._utils.documents import read_document
from fedul._utils.files import read_json, write_bytes, write_json
from fedul._utils.settings import build_config, refuse_unknown, with_underscores
from fedul.algorithms.base import declared_update
from fedul.config import TrainConfig
from fedul.core import Matrix, RoundMetrics, validate_test_prior
from fedul.data.class_mix import parse_class_mix
from fedul.engines.flower.identity.proof import ReplyVerifier
from fedul.engines.flower.identity.roster import Roster
from fedul.engines.flower.protocol.documents import LocalEvaluation, LocalEvaluationRequest
from fedul.engines.flower.protocol.message import Message, UnreadableMessage
from fedul.engines.flower.protocol.run_spec import RunSpec
from fedul.engines.flower.server.engine import FlowerEngine, SiteStateVersions
from fedul.engines.flower.server.local_evaluation import combine_local_evaluations, is_plausible
from fedul.engines.flower.server.site_registry import SiteRegistry
from fedul.engines.flower.server.transport import NoReply, Transport
from fedul.engines.flower.settings import CoordinatorConfig
from fedul.errors import EnvironmentFailure, InputError, unknown_name
from fedul.methods import METHODS
from fedul.models.weights import weights_of
from fedul.privacy.dp_sgd.network_check import check_network
from fedul.privacy.update_chain import build_update_chain
from fedul.reporting.page import render_page
from fedul.reporting.report_data import collect_folder
from fedul.training import (
    Callback,
    CallbackList,
    DataCounts,
    Recipe,
    Run,
    RunContext,
    RunFolder,
    RunInfo,
    RunRecord,
    RunResult,
    complete_steps,
)
from fedul.training.choice import resolve_settings
from fedul.training.client_protection import check_client_protection, protect_clients
from fedul.training.run_files import EVALUATION, REPORT, RUN_SPEC
from fedul.training.steps import complete


class LogProgress(Callback):
    """Prints one line per round on standard error; Flower shows it with 'flwr run --stream'."""

    def on_warning(self, message: str) -> None:
        print(f"fedul: {message}", file=sys.stderr, flush=True)

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        loss = "" if metrics.loss is None else f"  loss {metrics.loss:.4f}"
        text = f"round {metrics.round}/{run.rounds}{loss}  sites {metrics.clients}"
        text += "" if metrics.held_out_loss is None else f"  held-out {metrics.held_out_loss:.4f}"
        text += "" if metrics.epsilon is None else f"  epsilon {metrics.epsilon:.3f}"
        text += f"  {metrics.seconds:.1f} s"
        for site, reason in metrics.site_errors.items():
            text += f"\n  {site}: {reason}"
        self.on_warning(text)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        if result is not None:
            self.on_warning(f"done: round {result.selected_round} of {result.rounds} is delivered, in {run.folder}.")


@dataclass(frozen=True, eq=False)
class StoredRun:
    """Document `run_spec.json`: identifier of the run at the sites, and what they agreed on."""

    run: str
    spec: RunSpec


def run_coordinator(transport: Transport, settings: Mapping[str, Any], callbacks: Sequence[Callback] = ()) -> Run:
    """Run a federation of sites to its end.

    Parameters
    ----------
    transport : Transport
        Connection to the sites.
    settings : mapping of str to object
        Fields of `CoordinatorConfig` and `TrainConfig` by name, as Flower's run configuration has them.
    callbacks : sequence of Callback
        Called during the run, beside `LogProgress`.

    Returns
    -------
    Run
        The classifier, the metrics of every round, and the result.

    Raises
    ------
    InputError
        If a setting is wrong, or the run folder holds another run.
    EnvironmentFailure
        If too few sites connect or reply.
    """
    config, training = read_settings(settings)
    roster = _read_roster(config)
    folder, callback = RunFolder(config.out), CallbackList([LogProgress(), *callbacks])
    (test_prior, class_mix), recipe = _parse_mixes(config), Recipe(training)
    stored = _read_stored_run(folder, config, test_prior, class_mix)
    if stored:
        folder.check(_record(stored.spec, _resolve(recipe, stored.spec).config), resume=config.resume)
    folder.make()
    run_id, spec = (stored.run, stored.spec) if stored else (secrets.token_hex(8), None)
    registry = SiteRegistry(transport, config, training, run_id, callback, spec, config.sites)
    if roster:
        registry.verifier = ReplyVerifier(roster, run_id)
    else:
        callback.on_warning("there is no roster, so any registered key can use the name of any site.")
    spec = spec or registry.agree(test_prior, class_mix)
    recipe = _resolve(recipe, spec)
    registry.training = training = recipe.config
    module = models.build(training.model, spec.input_shape, len(spec.classes), training.seed, spec.test_prior)
    if training.protects_rows:
        check_network(module, training.model, spec.input_shape)
    if training.start_weights:
        models.load_start_weights(module, training.start_weights)
    registry.admit(registry.expected, config.start_seconds)
    sites = registry.sites.values()
    if len(sites) < config.min_sites:
        raise EnvironmentFailure(
            f"{len(sites)} sites can take part, and {config.min_sites} are needed (min-sites); start the others, or "
            "see why they were refused."
        )
    if training.selection == "held-out-loss" and not any(site.held_out_rows for site in sites):
        raise InputError("no site has held-out rows to select the round by; hold some out, or use select = 'last'.")
    method, algorithm = recipe.make_method(None), recipe.make_algorithm()
    update_spec = build_update_chain(training).declare(declared_update(algorithm, module))
    store = SiteStateVersions()
    engine = FlowerEngine(registry, update_spec, config, store)
    check_client_protection(training, algorithm, len(sites))
    protection = protect_clients(training, algorithm, module, folder.client_ledger())
    parts = (spec, None, module, training.model, method, algorithm, engine, store)
    context = RunContext(*parts, protection=protection)
    warnings = [*recipe.left_out(None), *method.startup_warnings(training.rounds)]
    warnings += algorithm.startup_warnings(weights_of(module), len(sites))
    if not any(site.identifies_classes for site in sites):
        warnings.append(
            "no site's priors alone tell all classes apart; the coordinator cannot check whether those of all do."
        )
    for message in warnings:
        callback.on_warning(message)
    with folder.opened(_record(spec, training), resume=config.resume) as state:
        write_json(folder.path / RUN_SPEC, {"run": run_id, "spec": spec.to_dict()})
        labels_used = sum(site.labelled_rows for site in registry.sites.values())
        counts = _count_data(registry)
        run = complete(complete_steps(context, training, state, folder, callback, RunInfo(0), counts, labels_used))
        if not training.is_private:  # local estimates depend on single rows and sites
            _evaluate(engine, registry, run, folder, callback)
        # Without the federation, so the page shows no priors.
        write_bytes(folder.path / REPORT, render_page(collect_folder(folder)).encode())
    return run


def read_settings(settings: Mapping[str, Any]) -> tuple[CoordinatorConfig, TrainConfig]:
    """Split one table of settings into those of the coordinator and of training, and check both."""
    values = {name: value for name, value in with_underscores(settings).items() if value != ""}
    refuse_unknown("setting", values, CoordinatorConfig, TrainConfig)
    names = {f.name for f in fields(CoordinatorConfig)}
    for name in ("method_option", "algorithm_option"):
        if isinstance(values.get(name), str):  # Flower's run configuration has no lists
            values[name] = values[name].split(",")
    config = build_config(CoordinatorConfig, {name: value for name, value in values.items() if name in names})
    training = build_config(TrainConfig, {name: value for name, value in values.items() if name not in names})
    if METHODS.load(training.method).needs_truth or training.selection == "held-out-error":
        raise InputError("sites have no labels; use a method and a way to select that need none.")
    if training.prior_epsilon is not None:
        raise InputError("prior-epsilon: every site decides about its own priors; put it into its site.toml.")
    if ":" in training.model:
        raise InputError(f"model '{training.model}': sites take models by name only ({', '.join(models.MODELS)}).")
    if training.model not in (*models.MODELS, "auto"):
        raise unknown_name("model", training.model, [*models.MODELS, "auto"])
    if (start := training.start_weights) and not (os.path.isabs(start) and os.path.isfile(start)):
        raise InputError(f"start-weights: '{start}' is not the absolute path of a file at the coordinator.")
    refuse_seeded_noise(training)
    Recipe(training).make_method(None)
    Recipe(training).make_algorithm()
    _parse_mixes(config)
    # A checkpoint every round: sites keep their state for the round of the last one.
    return config, replace(training, checkpoint_every=1, device="cpu")


def _read_roster(config: CoordinatorConfig) -> Roster | None:
    """Return the roster, if there is one; refuse to wait for more sites than it has."""
    if config.roster is None:
        return None
    roster = Roster.read(config.roster)
    if config.sites > len(roster.names):
        raise InputError(f"sites: {config.sites} is more than the {len(roster.names)} of {config.roster}; give fewer.")
    return roster


def refuse_seeded_noise(training: TrainConfig) -> None:
    """Refuse noise that others can repeat; sites refuse it too."""
    if training.dp_seeded:
        raise InputError("dp-seeded: is for simulations; at sites, noise is from their operating systems.")


def _resolve(recipe: Recipe, spec: RunSpec) -> Recipe:
    """Return the recipe with a value for every setting; without a choice, which would train at the sites many times."""
    recipe = resolve_settings(recipe, recipe.make_method(None), spec.input_shape, None)
    model = models.resolve(recipe.config.model, spec.input_shape)
    return replace(recipe, config=replace(recipe.config, model=model))


def _parse_mixes(config: CoordinatorConfig) -> tuple[Matrix, Matrix | None]:
    """Return the test prior (K,), and the class mix of all rows, if it is given."""
    prior, mix = (
        validate_test_prior(parse_class_mix(text, config.classes, where=where), config.classes, where=where)
        for text, where in ((config.test_prior, "test-prior"), (config.class_mix or "uniform", "class-mix"))
    )
    return prior, mix if config.class_mix else None


def _read_stored_run(
    folder: RunFolder, config: CoordinatorConfig, test_prior: Matrix, class_mix: Matrix | None
) -> StoredRun | None:
    """Return what the sites agreed on when the run in this folder started; None for a new run."""
    file, exists = folder.path / RUN_SPEC, folder.stored_config() is not None
    if exists and not config.resume:
        raise InputError(f"{folder.path}: holds a run already; continue it (resume=true), or choose another out.")
    if exists and not file.exists():
        raise InputError(f"{file}: is missing, and sites know the run by it; restore a copy, or choose another out.")
    if not file.exists():
        return None
    try:
        stored = read_document(StoredRun, read_json(file))
    except ValueError:
        raise InputError(f"{file}: damaged; restore a copy, or start a new run in another out.") from None
    if tuple(stored.spec.classes) != config.classes or not (stored.spec.test_prior == test_prior).all():
        raise InputError(f"{folder.path}: holds a run with other classes or another test prior; choose another out.")
    mix = stored.spec.class_mix
    if (mix is None) != (class_mix is None) or (mix is not None and not np.array_equal(mix, np.asarray(class_mix))):
        raise InputError(f"{folder.path}: holds a run with another class-mix; choose another out.")
    if stored.spec.site_adjustment != config.site_adjustment:
        raise InputError(f"{folder.path}: holds a run with another site-adjustment; choose another out.")
    return stored


def _record(spec: RunSpec, training: TrainConfig) -> RunRecord:
    """Return what the coordinator knows of the run; the data is at the sites."""
    text = json.dumps(spec.to_dict(), sort_keys=True)
    return RunRecord.of(training, None, {}, hashlib.sha256(text.encode()).hexdigest())


def _count_data(registry: SiteRegistry) -> DataCounts:
    sites = registry.sites.values()
    totals = {name: sum(getattr(site, name) for site in sites) for name in ("sets", "rows", "held_out_rows")}
    return DataCounts(clients=len(sites), **totals)


def _evaluate(engine: FlowerEngine, registry: SiteRegistry, run: Run, folder: RunFolder, callback: Callback) -> None:
    """Combine the accuracy estimates of the sites into `evaluation.json`."""
    request = registry.request(LocalEvaluationRequest, temperature=run.classifier.temperature)
    message = Message.of(request, weights=weights_of(run.classifier.module))
    evaluations: dict[str, LocalEvaluation] = {}
    for name, reply in engine.request_all("evaluate_locally", message).items():
        try:
            problem = reply.reason if isinstance(reply, NoReply) else ""
            evaluation = LocalEvaluation(0) if isinstance(reply, NoReply) else reply.read(LocalEvaluation)
        except UnreadableMessage as unreadable:
            problem = str(unreadable)
        if problem:
            callback.on_warning(f"site '{name}' does not evaluate the classifier: {problem}.")
        elif is_plausible(evaluation, registry.sites[name].held_out_rows):
            evaluations[name] = evaluation
    if combined := combine_local_evaluations(evaluations, run.classifier.classes):
        write_json(folder.path / EVALUATION, combined.to_dict())
