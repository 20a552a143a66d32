"""A run on real sites, from the coordinator's settings to the same folder that a run in process leaves."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch

from fedul import __version__, models
from fedul.algorithms import make_algorithm
from fedul.algorithms.base import Algorithm
from fedul.config import CoordinatorConfig, TrainConfig
from fedul.data.class_mix import parse_prior
from fedul.engines.flower.agreement import Agreement
from fedul.engines.flower.engine import AtSites, OnFlower
from fedul.engines.flower.letters import Letter, grouped
from fedul.engines.flower.members import Member, Members
from fedul.engines.flower.opinion import together
from fedul.engines.flower.post import Post, Silence
from fedul.errors import InputError, WorldError, unknown
from fedul.files import read_json, write_bytes, write_json
from fedul.methods import make_method
from fedul.methods.base import Method
from fedul.models.weights import weights_of
from fedul.priors import Matrix, validate_test_prior
from fedul.report.facts import AGREEMENT, facts_of
from fedul.report.page import page
from fedul.rounds import Parts, Reporter, run_rounds
from fedul.runs import EVALUATION, PAGE, RunFolder
from fedul.settings import make, plain, refuse_unknown, underscored
from fedul.training import Run, finish


class Spoken:
    """Tells how a run goes, a line at a time; Flower carries it to whoever watches ('flwr run --stream')."""

    def warn(self, sentence: str) -> None:
        print(f"fedul: {sentence}", file=sys.stderr, flush=True)

    def round(self, figures: Mapping[str, Any], rounds: int) -> None:
        held_out = figures.get("held_out_loss")
        told = f"round {figures['round']}/{rounds}  loss {figures['loss']:.4f}  sites {figures['clients']}"
        told += "" if held_out is None else f"  held-out {held_out:.4f}"
        told += f"  {figures['seconds']:.1f} s"
        for site, reason in figures.get("troubles", {}).items():
            told += f"\n  {site}: {reason}"
        print(f"fedul: {told}", file=sys.stderr, flush=True)


def coordinate(post: Post, settings: Mapping[str, Any]) -> Run:
    """Runs a federation of sites to its end."""
    config, training = read_settings(settings)
    folder, reporter, store = RunFolder(config.out), Spoken(), AtSites()
    test_prior, method, algorithm = _population(config), _method(training), _algorithm(training)
    name, agreed = _begun(folder, config, test_prior) or (secrets.token_hex(8), None)
    if agreed:
        folder.check(_record(agreed, _resolved(training, agreed)), resume=config.resume)
    folder.make()
    members = Members(post, config, training, name, reporter, agreed, config.sites)
    agreed = agreed or members.agree(test_prior)
    members.training = training = _resolved(training, agreed)
    module = models.build(training.model, agreed.input_shape, len(agreed.classes), training.seed)
    if training.start_weights:
        models.load_start_weights(module, training.start_weights)
    members.let_in(members.wanted, config.start_seconds)
    if (count := len(members.by_name)) < config.min_sites:
        raise WorldError(
            f"{count} sites can take part, and {config.min_sites} are needed (min-sites); start the others, or see why "
            "they were refused."
        )
    if training.select == "held-out" and not any(site.held_out_rows for site in members.by_name.values()):
        raise InputError("select held-out: no site has held-out rows; let them hold some out, or use select last.")
    engine = OnFlower(members, module, config, store)
    parts = Parts(agreed, None, module, training.model, method, algorithm, engine, store)
    for sentence in [*method.remarks(training.rounds), *algorithm.remarks(weights_of(module), count)]:
        reporter.warn(sentence)
    if not any(member.alone for member in members.by_name.values()):
        reporter.warn("no site's priors tell all classes apart by themselves; nobody can see whether all together do.")
    with folder.opened(_record(agreed, training), resume=config.resume) as state:
        write_json(folder.path / AGREEMENT, {"run": name, **agreed.plain()})
        last = run_rounds(parts, training, state, folder, reporter)
        for sentence in method.afterwards(last.history):
            reporter.warn(sentence)
        run = finish(parts, last, folder, _counts(members), 0)
        _evaluate(engine, run, folder, members.by_name, reporter)
        write_bytes(folder.path / PAGE, page(facts_of(folder)).encode())  # no federation: it shows no prior
        reporter.warn(f"done: round {run.selected_round} of {len(run.history)} is delivered, in {folder.path}.")
    return run


def read_settings(settings: Mapping[str, Any]) -> tuple[CoordinatorConfig, TrainConfig]:
    """The coordinator's settings and how to train, from one table of both; whatever can be refused now is."""
    values = {name: value for name, value in underscored(settings).items() if value != ""}
    refuse_unknown("setting", values, CoordinatorConfig, TrainConfig)
    own = {f.name for f in fields(CoordinatorConfig)}
    for name in ("method_option", "algorithm_option"):
        if isinstance(values.get(name), str):  # Flower's settings know no lists
            values[name] = values[name].split(",")
    config = make(CoordinatorConfig, {name: value for name, value in values.items() if name in own})
    training = make(TrainConfig, {name: value for name, value in values.items() if name not in own})
    if training.method == "supervised" or training.select == "validation-error":
        raise InputError("sites have no labels; use a method and a way to select that need none.")
    if ":" in training.model:
        raise InputError(f"model '{training.model}': sites take models by name only ({', '.join(models.MODELS)}).")
    if training.model not in (*models.MODELS, "auto"):
        raise unknown("model", training.model, [*models.MODELS, "auto"])
    if (start := training.start_weights) and not (os.path.isabs(start) and os.path.isfile(start)):
        raise InputError(f"start-weights: '{start}' is no absolute path of a file; the coordinator has to find it.")
    _method(training)
    _algorithm(training)
    _population(config)
    # Every round is kept: sites answer within seconds at best, and what they keep rests on the last checkpoint.
    return config, replace(training, checkpoint_every=1, device="cpu")


def _resolved(training: TrainConfig, agreed: Agreement) -> TrainConfig:
    """With the model by its name, where it was left to fedul."""
    return replace(training, model=models.resolve(training.model, agreed.input_shape))


def _method(training: TrainConfig) -> Method:
    return make_method(training.method, training.method_option, None, training.seed, training.loss)


def _algorithm(training: TrainConfig) -> Algorithm:
    return make_algorithm(training.algorithm, training.algorithm_option)


def _population(config: CoordinatorConfig) -> Matrix:
    """The class mix (K,) that the classifier is for."""
    shares = parse_prior(config.test_prior, config.classes, where="test-prior")
    return validate_test_prior(shares, config.classes, where="test-prior")


def _begun(folder: RunFolder, config: CoordinatorConfig, test_prior: Matrix) -> tuple[str, Agreement] | None:
    """The name that sites know the run by, and what was agreed on when it began; None for a new one."""
    file = folder.path / AGREEMENT
    if not config.resume and folder.stored_config() is not None:
        raise InputError(f"{folder.path}: holds a run already; go on with it (resume=true), or choose another out.")
    if config.resume and folder.stored_config() is not None and not file.exists():
        raise InputError(f"{file}: is missing, and sites know the run by it; restore a copy, or choose another out.")
    if not file.exists():
        return None
    try:
        stored = read_json(file)
        name, agreed = str(stored["run"]), Agreement.from_plain(stored)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{file}: damaged; restore a copy of it, or start the run anew in another out.") from None
    if tuple(agreed.classes) != config.classes or not (agreed.test_prior == test_prior).all():
        raise InputError(f"{folder.path}: holds a run with other classes or another test prior; choose another out.")
    return name, agreed


def _record(agreed: Agreement, training: TrainConfig) -> dict[str, Any]:
    """Everything on the coordinator's side that makes the run what it is."""
    told = json.dumps(agreed.plain(), sort_keys=True)
    return {
        "software": {"fedul": __version__, "torch": torch.__version__},
        "data": {},  # it is the sites', and is named nowhere here
        "data_fingerprint": hashlib.sha256(told.encode()).hexdigest(),
        "training": plain(training),
    }


def _counts(members: Members) -> dict[str, int]:
    sites = members.by_name.values()
    counts = {name: sum(getattr(site, name) for site in sites) for name in ("sets", "rows", "held_out_rows")}
    return {"clients": len(members.by_name), **counts}


def _evaluate(engine: OnFlower, run: Run, folder: RunFolder, members: Mapping[str, Member], reporter: Reporter) -> None:
    """Accuracy without labels, from what sites say of the delivered classifier."""
    weights = grouped(weights=weights_of(run.classifier.module))
    answers = engine.asked_all("evaluate", {"temperature": run.classifier.temperature}, weights)
    told = {name: answer.notes for name, answer in answers.items() if isinstance(answer, Letter)}
    for name in sorted(members.keys() - told.keys()):
        answer = answers.get(name)
        reason = answer.reason if isinstance(answer, Silence) else "not connected"
        reporter.warn(f"site '{name}' does not say what it thinks of the classifier: {reason}.")
    if found := together(told, run.classifier.classes, {name: site.held_out_rows for name, site in members.items()}):
        write_json(folder.path / EVALUATION, found)
