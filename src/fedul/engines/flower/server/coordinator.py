"""Coordinator of a run on real sites: from its settings to the same run folder as in process."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedul import models
from fedul._utils.extensions import explain_extensions
from fedul._utils.files import write_json
from fedul._utils.settings import build_config, refuse_unknown, with_underscores
from fedul.algorithms.base import declared_update
from fedul.config import TrainConfig
from fedul.core import Matrix, validate_test_prior
from fedul.data.class_mix import parse_class_mix
from fedul.engines.flower.identity.proof import ReplyVerifier
from fedul.engines.flower.identity.roster import Roster
from fedul.engines.flower.protocol.run_spec import RunSpec
from fedul.engines.flower.secure.contributions import update_layout
from fedul.engines.flower.secure.statistics import parse_words
from fedul.engines.flower.server.engine import FlowerEngine, SiteStateVersions
from fedul.engines.flower.server.log_progress import LogProgress
from fedul.engines.flower.server.secure_engine import SecureEngine
from fedul.engines.flower.server.secure_start import agree_securely, start_sums
from fedul.engines.flower.server.site_activity import site_table
from fedul.engines.flower.server.site_registry import SiteRegistry
from fedul.engines.flower.server.sites import count_sites
from fedul.engines.flower.server.stored_run import (
    StoredRun,
    declare_plan,
    read_stored_run,
    stored_epsilon,
    stored_evaluators,
)
from fedul.engines.flower.server.transport import Transport
from fedul.engines.flower.settings import CoordinatorConfig
from fedul.engines.secure_sums import FEWEST_CLIENTS, check_secure_aggregation
from fedul.errors import EnvironmentFailure, InputError, unknown_name
from fedul.methods import METHODS
from fedul.models.weights import weights_of
from fedul.privacy.dp_sgd.network_check import check_network
from fedul.privacy.update_chain import build_update_chain
from fedul.reporting.report import write_page
from fedul.reporting.report_data import collect_folder
from fedul.tracking import make_trackers
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
    complete_steps,
)
from fedul.training.choice import resolve_settings
from fedul.training.client_protection import check_client_protection, protect_clients
from fedul.training.run_files import EVALUATION, REPORT
from fedul.training.status_writer import StatusWriter
from fedul.training.steps import complete
from fedul.training.train import EXTENSIONS

NATURAL = "natural"
"""Test prior that is the class mix of all training rows."""


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
    folder, status = RunFolder(config.out), StatusWriter(Path(config.out))
    callback = CallbackList([LogProgress(), status, *make_trackers(config.tracking), *callbacks])
    folder.make()
    with status, folder.locked(), explain_extensions(EXTENSIONS):
        return _run(transport, config, training, roster, folder, callback, status)


def _run(
    transport: Transport,
    config: CoordinatorConfig,
    training: TrainConfig,
    roster: Roster | None,
    folder: RunFolder,
    callback: Callback,
    status: StatusWriter,
) -> Run:
    """Run a federation in its folder, which is locked."""
    (test_prior, class_mix), recipe = _parse_mixes(config), Recipe(training)
    stored = read_stored_run(folder, config, test_prior, class_mix)
    if stored:
        folder.check(_record(stored.spec, _resolve(recipe, stored.spec).config), resume=config.resume)
    status.begin()
    run_id, spec = (stored.run, stored.spec) if stored else (secrets.token_hex(8), None)
    registry = SiteRegistry(transport, config, training, run_id, callback, spec, config.sites)
    registry.resumption = stored.resumption + 1 if stored else 0
    status.table = partial(site_table, registry)
    transport.activity.on_change = status.refresh
    if roster:
        registry.verifier = ReplyVerifier(roster, run_id)
    else:
        callback.on_warning("there is no roster, so any registered key can use the name of any site.")
    sums = start_sums(registry, roster) if roster and training.secure_aggregation else None
    counts = dict(stored.counts) if stored else {}
    if spec is None and sums is not None:
        counts = agree_securely(registry, sums, test_prior, class_mix).counts
        spec = registry.spec
    elif spec is None:
        assert test_prior is not None
        spec = registry.agree(test_prior, class_mix)
    assert spec is not None
    recipe = _resolve(recipe, spec)
    registry.training = training = recipe.config
    registry.plan = plan = declare_plan(config, training, stored, counts.get("rows", 0))
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
    totals = counts or count_sites(sites)
    if training.selection == "held-out-loss" and not totals["held_out_rows"]:
        raise InputError("no site has held-out rows to select the round by; hold some out, or use select = 'last'.")
    method, algorithm = recipe.make_method(None), recipe.make_algorithm()
    update_spec = build_update_chain(training).declare(declared_update(algorithm, module))
    store = SiteStateVersions()
    epsilon = stored_epsilon(folder)
    engine = FlowerEngine(registry, update_spec, config, store, epsilon)
    if sums is not None:
        layout = update_layout(module, algorithm, training, plan, sums.most_sites)
        engine = SecureEngine(registry, update_spec, config, store, epsilon, sums, layout, stored_evaluators(folder))
    check_client_protection(training, algorithm, len(sites))
    protection = protect_clients(training, algorithm, module, folder.client_ledger())
    hidden = protection is not None and protection.hides_participants
    status.table = partial(site_table, registry, private=hidden, epsilon=lambda: engine.epsilon)
    parts = (spec, None, module, training.model, method, algorithm, engine, store)
    context = RunContext(*parts, protection=protection)
    warnings = [*recipe.left_out(None), *method.startup_warnings(training.rounds)]
    warnings += algorithm.startup_warnings(weights_of(module), len(sites))
    if not totals["identifying_sites"]:
        warnings.append(
            "no site's priors alone tell all classes apart; the coordinator cannot check whether those of all do."
        )
    for message in warnings:
        callback.on_warning(message)
    record = _record(spec, training)
    with folder.opened(record, resume=config.resume) as state:
        StoredRun(run_id, spec, plan, registry.resumption, counts).write(folder)
        data = DataCounts(**{each: totals[each] for each in ("sets", "rows", "held_out_rows")}, clients=totals["sites"])
        labels = totals["labelled_rows"]

        def finish(run: Run) -> None:
            # Local estimates depend on single rows and sites.
            evaluation = None if training.is_private else engine.evaluate_locally(run.classifier)
            if evaluation is not None:
                write_json(folder.path / EVALUATION, evaluation.to_dict())
            # Without the federation, so the page shows no priors.
            write_page(collect_folder(folder), folder.path / REPORT, force=True)

        info = RunInfo(0, record=record)
        run = complete(complete_steps(context, training, state, folder, callback, info, data, labels, finish=finish))
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
    check_client_protection(training, Recipe(training).make_algorithm(), config.sites)
    _parse_mixes(config)
    _check_security(config, training)
    # A checkpoint every round: sites keep their state for the round of the last one.
    return config, replace(training, checkpoint_every=1, device="cpu")


def _check_security(config: CoordinatorConfig, training: TrainConfig) -> None:
    """Refuse settings that do not fit together with secure aggregation, or without it."""
    parse_words(config.words or "")
    if not training.secure_aggregation:
        if config.test_prior == NATURAL:
            raise InputError(
                "test-prior: the class mix of all rows is not known here; state it, or use secure-aggregation, with "
                "which sites sum it."
            )
        return
    check_secure_aggregation(Recipe(training).make_algorithm(), training, training.participants(config.sites))
    if training.dp_noise:
        raise InputError(
            "dp-noise: with secure-aggregation, sites do not state what their rows pay; give dp-epsilon, which each of "
            "them keeps."
        )
    if config.min_sites < FEWEST_CLIENTS:
        raise InputError(
            f"min-sites: sums over {config.min_sites} sites hide no single one; give at least {FEWEST_CLIENTS} with "
            "secure-aggregation."
        )
    if config.roster is None:
        raise InputError(
            "roster: secure-aggregation needs the file with the public keys of the sites ('fedul federation roster')."
        )


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


def _parse_mixes(config: CoordinatorConfig) -> tuple[Matrix | None, Matrix | None]:
    """Return the test prior (K,), or None if it follows from all rows; and the class mix of all rows, if given."""
    given = {"test-prior": None if config.test_prior == NATURAL else config.test_prior, "class-mix": config.class_mix}
    prior, mix = (
        None
        if text is None
        else validate_test_prior(parse_class_mix(text, config.classes, where=where), config.classes, where=where)
        for where, text in given.items()
    )
    return prior, mix


def _record(spec: RunSpec, training: TrainConfig) -> RunRecord:
    """Return what the coordinator knows of the run; the data is at the sites."""
    text = json.dumps(spec.to_dict(), sort_keys=True)
    return RunRecord.of(training, None, {}, hashlib.sha256(text.encode()).hexdigest())
