"""A site's part in a run: its rows, the network, the settings, and what it allows the run to ask."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fedul import models
from fedul._utils.display import counted
from fedul._utils.hardware import default_threads, torch_threads
from fedul.algorithms import ALGORITHMS
from fedul.core import UnlabeledSets, Weights
from fedul.engines.flower.protocol.documents import RunRequest
from fedul.engines.flower.protocol.message import Message, printable
from fedul.engines.flower.site.degenerate import refuse_degenerate
from fedul.engines.flower.site.plan_guard import PlanGuard
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.row_budget import RowBudget
from fedul.engines.flower.site.site_data import SiteData, log_warning
from fedul.engines.flower.site.site_sums import SiteSums
from fedul.engines.held_out import HeldOutSums
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.engines.simulation.layout import use_channels_last
from fedul.engines.simulation.precision import run_precision
from fedul.errors import InputError
from fedul.methods import METHODS
from fedul.methods.base import Method
from fedul.methods.checked import checked_task
from fedul.methods.fedul import set_task
from fedul.models.mixed_precision import in_precision
from fedul.models.weights import load_weights
from fedul.privacy.dp_sgd.network_check import check_network
from fedul.training import Recipe


@dataclass(frozen=True, eq=False)
class SiteRun:
    """A site's part in a run.

    Parameters
    ----------
    request : RunRequest
        The request.
    client : UnlabeledSets
        Rows and priors of the site.
    module : nn.Module
        The network, with weights that do not matter.
    recipe : Recipe
        The settings of training.
    guard : PlanGuard
        Checks requests against the plan of the run.
    sums : SiteSums or None
        The secure sums of the site; None without secure aggregation.
    budget : RowBudget or None
        What its rows pay; None if rows are not private.
    """

    request: RunRequest
    client: UnlabeledSets
    module: nn.Module
    recipe: Recipe
    guard: PlanGuard
    sums: SiteSums | None
    budget: RowBudget | None

    @classmethod
    def of(cls, data: SiteData, request: RunRequest, *, joins: bool = False) -> SiteRun:
        """Return the part of a site in the run of a request; PublicError if it takes no part."""
        config, spec = request.training, request.spec
        check_security(data, secure=config.secure_aggregation)
        with data.explain_state_errors():
            guard = PlanGuard(data.run_folder(request.run), request)
        if guard.is_new and not joins:
            log_warning("the plan of this run is missing in the state folder; it is taken from this message.")
        if config.model not in models.MODELS:  # "package.module:factory" would run code that the coordinator names
            raise PublicError(f"model '{config.model[:40]}': sites take models by name ({', '.join(models.MODELS)})")
        for registry, name in ((METHODS, config.method), (ALGORITHMS, config.algorithm_name)):
            if name not in registry:
                raise PublicError(f"{registry.kind} '{name[:40]}' is not installed here")
            if not (registry.is_builtin(name) or name in data.config.allow_methods):
                raise PublicError(f"{registry.kind} '{name}' is of another package, and not in its allow-methods")
        client = data.client(spec, request.run, joins=joins)
        check_rows(data, len(client.train))
        module = models.build(config.model, spec.input_shape, len(spec.classes), config.seed)
        if config.dp_seeded:
            raise PublicError("noise that others can repeat (dp-seeded) is for simulations")
        if config.protects_rows:
            check_network(module, config.model, spec.input_shape)
        use_channels_last(module, spec.input_shape)
        sums = SiteSums(data, request.run, request.resumption) if config.secure_aggregation else None
        recipe, budget = Recipe(config), None
        if config.protects_rows:
            rows = len(checked_task(recipe.make_method(None), client, spec))
            budget = RowBudget(data, request.run, config, rows)
        return cls(request, client, module, recipe, guard, sums, budget)

    def describe(self) -> str:
        """Return what the site joins, in one sentence for its log."""
        config, plan, run = self.request.training, self.guard.plan, printable(self.request.run, 40)
        parts = [
            f"method {config.method}",
            f"algorithm {config.algorithm_name}",
            counted(plan.rounds, "round") + " at most",
            f"sums over at least {plan.min_sites} sites" if config.secure_aggregation else "no secure aggregation",
            "rows not private",
        ]
        if config.protects_rows:
            noise, epsilon = config.dp_noise, config.dp_epsilon
            given = f"dp-noise {noise}" if epsilon is None else f"dp-epsilon {epsilon:g}"
            parts[-1] = f"private rows ({given}, dp-delta {config.dp_delta:g})"
        return f"joins run {run}: {', '.join(parts)}."

    def is_asked_for(self, purpose: str, message: Message) -> bool:
        """Return whether a message asks for what belongs to a purpose; with secure aggregation, for a masked vector."""
        return self.sums is None or purpose in self.sums.masks(message)

    @property
    def method(self) -> Method:
        """The method of the run."""
        return self.recipe.make_method(None)

    @property
    def threads(self) -> AbstractContextManager[None]:
        """The site chooses its number of threads; the coordinator's setting is ignored."""
        return torch_threads(default_threads(self.module))

    @cached_property
    def precision(self) -> str:
        """The precision that the coordinator asks for; "auto" follows the hardware of the site."""
        try:
            return run_precision(self.request.training, self.module, self.request.spec.input_shape)
        except InputError as problem:
            raise PublicError(str(problem).rstrip(".")) from None

    def refuse_degenerate(self, weights: Weights) -> None:
        """Refuse weights that give every row the same answer."""
        refuse_degenerate(self.module, weights, self.client, self.request.spec)

    @torch.no_grad()
    def evaluate_held_out(self, weights: Weights, reference: Weights, temperature: float | None) -> HeldOutSums:
        """Return sums of -log Q over held-out rows, at each temperature, and of its difference from the reference."""
        for each in filter(None, (weights, reference)):
            self.refuse_degenerate(each)
        module = copy.deepcopy(self.module)
        predict = in_precision(module, self.precision).eval()
        evaluator = HeldOutEvaluator([set_task(self.client, self.client.held_out, self.request.spec)])
        if not len(self.client.held_out):
            return HeldOutSums()
        compared = None
        if temperature is not None:
            load_weights(module, reference)
            compared = evaluator.predictions(predict, temperature)
        load_weights(module, weights)
        sums = evaluator.compare(evaluator.predictions(predict), compared, temperature or 1.0)
        if not np.isfinite(sums.numbers).all():
            raise PublicError("the loss of its held-out rows is not finite")
        return sums


def check_rows(data: SiteData, rows: int) -> None:
    """Refuse to disclose anything about a handful of rows: their moments would disclose single ones."""
    if rows < data.config.min_rows:
        raise PublicError(f"its rows to train on are fewer than its min-rows {data.config.min_rows}")


def check_security(data: SiteData, *, secure: bool) -> None:
    """Refuse a run without secure aggregation at a site that demands it."""
    if data.config.require_secure_aggregation and not secure:
        raise PublicError("it takes part in runs with secure-aggregation only (require-secure-aggregation)")
