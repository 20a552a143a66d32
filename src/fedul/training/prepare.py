"""A run before its first round: its settings and parts, and everything that can be wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from fedul import models
from fedul._utils.display import counted
from fedul._utils.hardware import default_threads, resolve_device
from fedul.config import TrainConfig
from fedul.core import Federation, Study, check_identifiability
from fedul.engines.client_store import ClientStore, MemoryStore
from fedul.engines.simulation.engine import SimulationEngine
from fedul.engines.simulation.shared_inputs import SharedInputs
from fedul.errors import InputError
from fedul.models.weights import precision_of, weights_of
from fedul.privacy.accounting import require_accounting
from fedul.privacy.ledger import Ledger
from fedul.privacy.prior_noise import PerturbedPriors
from fedul.training.callbacks import Callback, RunInfo
from fedul.training.check_fit import check_fit, small_batch_warnings
from fedul.training.choice import Choice, resolve_recipe
from fedul.training.client_protection import check_client_protection, protect_clients
from fedul.training.perturbed_priors import perturb_study, prior_noise_warnings
from fedul.training.recipe import Recipe
from fedul.training.resolve import resolve_run
from fedul.training.result import Run
from fedul.training.rounds import RunContext
from fedul.training.run_folder import RunFolder
from fedul.training.run_record import RunRecord


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run before its first round.

    Parameters
    ----------
    study : Study
        The data.
    recipe : Recipe
        A value for every setting.
    choice : Choice or None
        What was chosen without labels.
    context : RunContext
        The parts of the run.
    record : RunRecord
        Everything needed to repeat it.
    folder : RunFolder or None
        The run folder, if there is one.
    resume : bool
        Whether a run in the folder is continued.
    perturbed : PerturbedPriors or None
        The class priors, if they are perturbed in this run.
    """

    study: Study
    recipe: Recipe
    choice: Choice | None
    context: RunContext
    record: RunRecord
    folder: RunFolder | None
    resume: bool
    perturbed: PerturbedPriors | None = None

    @property
    def federation(self) -> Federation:
        """The clients."""
        return self.study.federation

    @property
    def threads(self) -> int:
        """Threads of torch."""
        return self.recipe.config.threads or default_threads(self.context.module)


class TrainParts(Protocol):
    """Trains a run on each part of a federation, as `fedul.training.train.train_parts` does."""

    def __call__(
        self, parts: Iterable[Federation], recipe: Recipe, infos: Iterable[RunInfo], callback: Callback, /
    ) -> Iterator[Run]: ...


def prepare_run(
    data: Study | Federation,
    recipe: Recipe,
    train_parts: TrainParts,
    *,
    folder: RunFolder | None,
    resume: bool,
    force: bool,
    callback: Callback,
    shared_inputs: SharedInputs | None = None,
) -> PreparedRun:
    """Resolve all settings, where needed by training on parts of the data, and build the parts of the run.

    Warnings go to the callback. Nothing is written.
    """
    if recipe.config.is_private:
        require_accounting()  # before settings are chosen and anything is written
    study, perturbed = perturb_study(Study.of(data), recipe.config, None if folder is None else folder.path)
    recipe, choice = resolve_run(study, recipe, folder, callback, train_parts)
    if folder is None:
        context = _build_context(study, recipe, MemoryStore(), shared_inputs)
    else:
        ledgers = folder.ledger(), folder.client_ledger()
        context = _build_context(study, recipe, folder.client_store(), shared_inputs, *ledgers)
    warnings = [*study.warnings, *recipe.left_out(study.truth)]
    for message in [*warnings, *_startup_warnings(study.federation, context, recipe.config, force=force)]:
        callback.on_warning(message)
    decided = replace(recipe.config, model=context.model_name, precision=context.precision)
    record = RunRecord.of(decided, context.module, study.origin, study.federation.fingerprint())
    return PreparedRun(study, recipe, choice, context, record, folder, resume, perturbed)


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
    messages += [*small_batch_warnings(federation, config), *context.method.startup_warnings(config.rounds)]
    messages += context.algorithm.startup_warnings(weights_of(context.module), clients)
    if context.protection is not None:
        messages += context.protection.warnings(len(federation.clients))
    messages += prior_noise_warnings(federation, config.prior_epsilon)
    return [*messages, *context.engine.warnings]


def _build_context(
    study: Study,
    recipe: Recipe,
    store: ClientStore,
    shared_inputs: SharedInputs | None = None,
    ledger: Ledger | None = None,
    client_ledger: Ledger | None = None,
) -> RunContext:
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
    check_fit(federation, module, name, method, config)
    if config.start_weights:
        models.load_start_weights(module, config.start_weights)
    algorithm = recipe.make_algorithm()
    check_client_protection(config, algorithm, len(federation.clients))
    device = resolve_device(config.device)
    module.to(device)
    shared = SharedInputs() if shared_inputs is None else shared_inputs
    federation = shared.move(federation, device, precision_of(module))
    engine = SimulationEngine(federation, method, algorithm, module, config, store, shared_inputs=shared, ledger=ledger)
    labelled = None if truth is None else Study(federation, truth)
    protection = protect_clients(config, algorithm, module, client_ledger)
    parts = (federation.spec, labelled, module, name, method, algorithm, engine, store, engine.precision, protection)
    return RunContext(*parts)
