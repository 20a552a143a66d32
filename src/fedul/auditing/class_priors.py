"""Reconstruction of class priors by a malicious coordinator: the attack of docs/privacy/threat-model.md.

The coordinator evaluates networks that give every row the same answer, whose held-out loss depends on class priors and
sizes of sets only (`prior_equations`). It sees the loss of every client; under secure aggregation it sees the total
over all clients. It is assumed to know the sizes of all sets, and to get a reply to every message: sites refuse such
weights and evaluations that are not in the plan of a run, but a little noise in the weights passes the first check.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import binom
from torch import nn

from fedul.auditing.document import NotMeasured, PriorResult
from fedul.auditing.observed_run import prepare
from fedul.auditing.prior_equations import SetSizes, share_error, solve_shares
from fedul.auditing.protections import Condition
from fedul.core import Federation, Matrix, UnlabeledSets, Weights
from fedul.engines.held_out import TEMPERATURES, HeldOutSums, sum_held_out
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.errors import InputError
from fedul.methods.fedul import set_task
from fedul.models.weights import load_weights, weights_of
from fedul.training.prepare import PreparedRun

ODDS = np.exp(np.linspace(-6, 6, 25))
"""Ratios of the odds at which a loss is asked for, one message each."""
MOST_CLIENTS = 20
MOST_CLASSES = 4
"""Clients and classes that are attacked; of more, the first ones."""
AT_ONE = TEMPERATURES.index(1.0)
DP_REASON = (
    "Differential privacy of rows does not cover class priors. Clients with private rows send no held-out losses, so "
    "this attack gets no answer; their updates still depend on the class priors."
)
NO_HELD_OUT = "No rows are held out, so clients send no held-out losses, which this attack needs."
NO_BIAS = (
    "The last layer of this network has no bias, so the attack has no weights that give every row the same answer."
)


def reconstruct_priors(federation: Federation, condition: Condition) -> PriorResult | NotMeasured:
    """Return how exactly class priors are found, beside guessing the published share of a class for every set.

    Parameters
    ----------
    federation : Federation
        The clients.
    condition : Condition
        How they train.
    """
    name = condition.protection.name
    if condition.config.is_private:
        return NotMeasured("class-priors", name, DP_REASON)
    clients = [client for client in federation.clients if len(client.held_out)][:MOST_CLIENTS]
    if not clients:
        return NotMeasured("class-priors", name, NO_HELD_OUT)
    federation = replace(federation, clients=clients)
    try:
        run = prepare(federation, condition.recipe)
        groups = _groups(federation, run, summed=condition.config.secure_aggregation)
        found = [_attack(federation, run, group) for group in groups]
    except InputError as problem:
        return NotMeasured("class-priors", name, str(problem))
    errors, guesses = (np.concatenate(each) for each in zip(*found, strict=True))
    classes = range(min(len(federation.classes), MOST_CLASSES))
    pooled = [share_error(_pooled_shares(clients, k, len(c.priors)), c.priors[:, k]) for c in clients for k in classes]
    wins = int((errors < guesses).sum())
    return PriorResult(
        protection=name,
        error=float(errors.mean()),
        guess_error=float(guesses.mean()),
        pooled_error=float(np.mean(pooled)),
        compared=len(errors),
        wins=wins,
        p_value=float(binom.sf(wins - 1, len(errors), 0.5)),
    )


@dataclass(frozen=True, eq=False)
class _Group:
    """Clients of which the coordinator sees one sum, and the function that returns it for weights."""

    clients: Sequence[UnlabeledSets]
    evaluate: Callable[[Weights], HeldOutSums]


def _groups(federation: Federation, run: PreparedRun, *, summed: bool) -> list[_Group]:
    """Return all clients as one group, or each as one, evaluated as at its site."""
    context = run.context
    if summed:
        engine = context.engine
        return [_Group(federation.clients, lambda weights: sum_held_out(engine.evaluate_held_out(weights).values()))]

    def alone(client: UnlabeledSets) -> Callable[[Weights], HeldOutSums]:
        task = set_task(client, client.held_out, federation.spec)
        evaluator = HeldOutEvaluator([task], run.recipe.config.seed)

        def evaluate(weights: Weights) -> HeldOutSums:
            load_weights(context.module, weights)
            with torch.no_grad():
                return evaluator.compare(evaluator.predictions(context.module.eval(), None))

        return evaluate

    return [_Group([client], alone(client)) for client in federation.clients]


def _attack(federation: Federation, run: PreparedRun, group: _Group) -> tuple[Matrix, Matrix]:
    """Return the errors of the attack and of the guess, for each client of a group and each class."""
    published = federation.columns.class_mix
    errors, guesses = list[float](), list[float]()
    sizes = [_sizes(client) for client in group.clients]
    rows = np.array([len(client.held_out) for client in group.clients])
    for k in range(min(len(federation.classes), MOST_CLASSES)):
        sums = [group.evaluate(constant_weights(run, k, odds)) for odds in ODDS]
        observed = np.array([each.losses[AT_ONE] / each.rows for each in sums])
        shares = solve_shares(observed, ODDS, sizes, rows / rows.sum(), float(published[k]))
        for client, found in zip(group.clients, shares, strict=True):
            true = client.priors[:, k]
            errors.append(share_error(found, true))
            guesses.append(share_error(np.full(len(true), published[k]), true))
    return np.array(errors), np.array(guesses)


def constant_weights(run: PreparedRun, k: int, odds: float) -> Weights:
    """Return weights with which the odds of class k are a multiple of those of the test prior, for every row.

    Raises
    ------
    InputError
        If the last layer of the network has no bias.
    """
    module, prior = run.context.module, run.context.spec.test_prior
    names = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear) and layer.bias is not None]
    if not names or module.get_submodule(names[-1]).out_features != len(prior):
        raise InputError(NO_BIAS)
    last = names[-1] + "." if names[-1] else ""
    logits = torch.from_numpy(np.log(prior))
    logits[k] += float(np.log(odds))
    weights = {name: t.clone() for name, t in weights_of(copy.deepcopy(module)).items()}
    weights[f"{last}weight"].zero_()
    weights[f"{last}bias"].copy_(logits)
    return weights


def _pooled_shares(clients: Sequence[UnlabeledSets], k: int, sets: int) -> Matrix:
    """Return as many shares of a class as a client has sets, distributed as those of all clients; largest first."""
    shares = np.concatenate([client.priors[:, k] for client in clients])
    quantiles: Matrix = np.quantile(shares, (np.arange(sets) + 0.5) / sets)[::-1]
    return quantiles


def _sizes(client: UnlabeledSets) -> SetSizes:
    counts = np.bincount(client.held_out.sets.numpy(), minlength=len(client.priors))
    return SetSizes(counts / counts.sum(), client.set_priors)
