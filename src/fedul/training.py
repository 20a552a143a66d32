"""`fedul.train`: the one entry, where data, method, algorithm and engine meet."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedul import __version__, models
from fedul.algorithms import make_algorithm
from fedul.classifier import Classifier
from fedul.config import TrainConfig
from fedul.engines.inprocess import InProcess
from fedul.engines.store import ClientStore, InMemory
from fedul.errors import InputError
from fedul.evaluation.with_truth import calibration_error, test_error
from fedul.federation import Federation, identifiability
from fedul.files import tensors_digest
from fedul.hardware import arithmetic_threads, device_named, good_threads, placed
from fedul.methods import make_method
from fedul.methods.base import Method
from fedul.models.weights import load_weights, precision_of, weights_of
from fedul.rounds import Parts, Reporter, run_rounds
from fedul.runs import RunFolder, State
from fedul.settings import make, plain
from fedul.truth import Study, Truth


class Quiet:
    """Shows no progress; warnings are Python's own."""

    def warn(self, sentence: str) -> None:
        warnings.warn(sentence, stacklevel=3)

    def round(self, figures: Mapping[str, Any], rounds: int) -> None:
        pass


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What a training run came to."""

    classifier: Classifier
    history: Sequence[Mapping[str, Any]]  # the figures of every round
    selected_round: int
    validation_loss: float | None  # held-out -log Q of the selected round, at its best temperature
    test_error: float | None  # of the selected round, over the pooled test rows; None without truth
    test_errors: Sequence[float]  # over each client's test rows; empty without truth
    calibration_error: float | None  # expected calibration error of the delivered probabilities; None without truth
    weights_sha256: str  # of the last round
    labels_used: int
    folder: Path | None

    def __repr__(self) -> str:
        error = "" if self.test_error is None else f", test error {self.test_error:.2%}"
        return f"<Run of {len(self.history)} rounds, round {self.selected_round} selected{error}>"

    @property
    def test_error_clients(self) -> float | None:
        """Averaged over the clients' test sets, as the paper's tables do; None without truth."""
        return sum(self.test_errors) / len(self.test_errors) if self.test_errors else None

    def summary(self) -> dict[str, Any]:
        """The run in a few figures, as `fedul train --json` prints them."""
        return {
            "run": None if self.folder is None else str(self.folder),
            "rounds": len(self.history),
            "selected_round": self.selected_round,
            "test_error": self.test_error,
            "test_error_clients": self.test_error_clients,
            "test_errors": list(self.test_errors),
            "calibration_error": self.calibration_error,
            "validation_loss": self.validation_loss,
            "labels_used": self.labels_used,
            "weights_sha256": self.weights_sha256,
        }


def train(
    data: Federation | Study,
    *,
    model: str | nn.Module | Callable[[tuple[int, ...], int], nn.Module] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    reporter: Reporter | None = None,
    **settings: Any,
) -> Run:
    """Trains a classifier across the clients of a federation.

    `settings` are the fields of `fedul.TrainConfig` (rounds, method, algorithm, learning_rate, ...). With `out` the
    run is kept in a folder and can be resumed; `force` trains even where the priors cannot tell the classes apart.
    """
    if not isinstance(data, Federation | Study):
        raise InputError(f"train takes a Federation or what fedul.load returns, not {type(data).__name__}.")
    federation, truth = (data.federation, data.truth) if isinstance(data, Study) else (data, None)
    if isinstance(model, str):
        settings["model"] = model
    config = make(TrainConfig, settings)
    reporter = reporter or Quiet()
    folder = None if out is None else RunFolder(out)
    store = InMemory() if folder is None else folder.client_store()
    parts = _put_together(federation, truth, config, config.model if model is None else model, store)
    told = data.remarks if isinstance(data, Study) else ()
    for sentence in [*told, *_remarks(federation, parts, config, force=force)]:
        reporter.warn(sentence)

    origin = data.origin if isinstance(data, Study) else {}
    opened = (
        nullcontext() if folder is None else folder.opened(_record(federation, origin, config, parts), resume=resume)
    )
    with opened as state, arithmetic_threads(config.threads or good_threads(parts.module)):
        used = parts.method.labels_used(federation)
        done = run_rounds(parts, config, state, folder, reporter)
        for sentence in parts.method.afterwards(done.history):
            reporter.warn(sentence)
        return finish(parts, done, folder, _counts(federation), used)


def check_run(data: Study, *, force: bool = False, **settings: Any) -> None:
    """Raises what `train` would raise before its first round; nothing is trained and nothing is written."""
    config = make(TrainConfig, settings)
    parts = _put_together(data.federation, data.truth, config, config.model, InMemory())
    _remarks(data.federation, parts, config, force=force)


def _remarks(federation: Federation, parts: Parts, config: TrainConfig, *, force: bool) -> list[str]:
    """What a user should know before the first round; priors that cannot tell classes apart are refused."""
    try:
        found = list(identifiability(federation))
    except InputError as problem:
        if not force and not parts.method.labels_used(federation):
            raise
        found = [str(problem).partition(";")[0] + "."]
    clients = config.participants(len(federation.clients))
    found += [*parts.method.remarks(config.rounds), *parts.algorithm.remarks(weights_of(parts.module), clients)]
    return [*found, *parts.engine.remarks]


def _put_together(
    federation: Federation, truth: Truth | None, config: TrainConfig, model: Any, store: ClientStore
) -> Parts:
    """The parts of a run, with everything checked that can be wrong with them."""
    if config.select == "validation-error" and truth is None:
        raise InputError("select validation-error: needs labels, and this federation has none; use held-out.")
    if config.select != "last" and not any(len(c.held_out) for c in federation.clients):
        raise InputError(f"select {config.select}: no client has held-out rows; hold some out, or use select last.")
    name = models.resolve(model, federation.input_shape) if isinstance(model, str) else "custom"
    module = models.build(
        name if isinstance(model, str) else model,
        federation.input_shape,
        len(federation.classes),
        config.seed,
    )
    method = make_method(config.method, config.method_option, truth, config.seed, config.loss)
    _check_fit(federation, module, method, config)
    if config.start_weights:
        models.load_start_weights(module, config.start_weights)
    algorithm = make_algorithm(config.algorithm, config.algorithm_option)
    device = device_named(config.device)
    module.to(device)
    federation = placed(federation, device, precision_of(module))
    engine = InProcess(federation, method, algorithm, module, config, store)
    study = None if truth is None else Study(federation, truth)
    return Parts(federation, study, module, name, method, algorithm, engine, store)


def _check_fit(federation: Federation, module: nn.Module, method: Method, config: TrainConfig) -> None:
    """Refuses what would fail only in the first step, when a run folder exists already."""
    if config.augment != "none" and len(federation.input_shape) != 3:
        raise InputError(f"augment {config.augment}: needs images, but a row has shape {federation.input_shape}.")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InputError("the model has no weights to train; use one that has.")
    if config.batch_size == 1 and any(isinstance(layer, nn.BatchNorm1d) for layer in module.modules()):
        raise InputError("batch-size 1: batch norm needs two rows a step; use a larger one, or another model.")
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules()):
        for client in federation.clients:
            if len(method.task(client, federation)) < 2:
                raise InputError(
                    f"client '{client.name}' has one row to train on; batch norm needs two, so use another model."
                )


def finish(parts: Parts, state: State, folder: RunFolder | None, counts: Mapping[str, int], labels_used: int) -> Run:
    """What the run came to, kept in its folder if it has one; `counts` is how much there was to learn from."""
    agreed, truth = parts.agreed, parts.study.truth if parts.study else None
    chosen = state.history[state.selected_round - 1]
    load_weights(parts.module, state.selected)
    pooled, by_client = None, list[float]()
    if truth is not None:
        pooled, by_client = test_error(parts.module, truth, agreed.scaling)
    classifier = Classifier(
        parts.module.cpu(),
        parts.model_name,
        tuple(agreed.classes),
        agreed.input_shape,
        agreed.test_prior,
        agreed.scaling,
        temperature=chosen["temperature"],
        schema=agreed.schema,
    )
    apart = None
    if truth is not None:
        apart = calibration_error(classifier.predict_proba(truth.test_inputs), truth.test_labels)
    run = Run(
        classifier=classifier,
        history=state.history,
        selected_round=state.selected_round,
        validation_loss=chosen["held_out_loss"],
        test_error=pooled,
        test_errors=by_client,
        weights_sha256=tensors_digest(state.weights),
        labels_used=labels_used,
        calibration_error=apart,
        folder=None if folder is None else folder.path,
    )
    if folder is not None:
        folder.save_classifier(classifier)
        folder.save_result({**run.summary(), "data": counts}, seconds=sum(line["seconds"] for line in state.history))
    return run


def _counts(federation: Federation) -> dict[str, int]:
    """How much there was to learn from."""
    clients = federation.clients
    return {
        "clients": len(clients),
        "sets": sum(len(client.priors) for client in clients),
        "rows": sum(len(client.train) for client in clients),
        "held_out_rows": sum(len(client.held_out) for client in clients),
    }


def _record(federation: Federation, origin: Mapping[str, Any], config: TrainConfig, parts: Parts) -> dict[str, Any]:
    """Everything needed to repeat the run."""
    network = sorted((name, tuple(tensor.shape)) for name, tensor in weights_of(parts.module).items())
    return {
        "software": {"fedul": __version__, "torch": torch.__version__},
        "data": dict(origin),
        "data_fingerprint": federation.fingerprint(),
        "network_fingerprint": hashlib.sha256(repr(network).encode()).hexdigest(),  # all user's models are "custom"
        "training": {**plain(config), "model": parts.model_name},
    }
