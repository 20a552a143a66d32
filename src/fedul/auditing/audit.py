"""`fedul.audit`: attacks on the configuration of a run, without protection, with private rows and with secure sums.

It takes about as long as training the run ten to twenty times. It is not resumed: a stopped audit begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul._utils.files import write_json
from fedul._utils.randomness import key_seed
from fedul.algorithms.base import Algorithm
from fedul.auditing.canary_bound import bound_epsilon, check_canaries
from fedul.auditing.class_priors import reconstruct_priors
from fedul.auditing.document import (
    ATTACKS,
    CANARIES,
    DEFAULT_EPSILON,
    SHADOWS,
    Attack,
    AuditResult,
    NotMeasured,
)
from fedul.auditing.gradient_inversion import invert_gradients
from fedul.auditing.membership import MembershipAttack
from fedul.auditing.observed_run import prepare
from fedul.auditing.protections import Condition, make_conditions
from fedul.config import TrainConfig
from fedul.core import Federation, Study
from fedul.errors import FedulError, InputError, unknown_name
from fedul.evaluation.run_target import RunTarget
from fedul.methods.base import Method
from fedul.models import Model
from fedul.training import Callback, CallbackList, Run, RunFolder, RunInfo
from fedul.training.run_files import AUDIT
from fedul.training.train import train

SAME_CLASSIFIER = (
    "Secure aggregation hides updates, not the classifier, so membership is inferred from it as without protection."
)


def audit(
    run: Run | RunFolder | str | Path | Study | Federation,
    config: TrainConfig | None = None,
    *,
    attacks: Sequence[str] = ATTACKS,
    shadows: int = SHADOWS,
    canaries: int = CANARIES,
    epsilon: float = DEFAULT_EPSILON,
    seed: int = 0,
    method: str | Method | None = None,
    algorithm: str | Algorithm | None = None,
    model: Model | None = None,
    study: Study | None = None,
    data: Any = None,
    priors: Any = None,
    callbacks: Sequence[Callback] = (),
) -> AuditResult:
    """Attack the configuration of a run, and measure what attackers get.

    Every attack is run without protection, with differential privacy of rows, and with secure aggregation.

    Parameters
    ----------
    run : Run, RunFolder, path, Study or Federation
        What `fedul.train` returned, or the folder of a finished run, into which `audit.json` is written. Data is
        trained on first, by `config`.
    config : TrainConfig, optional
        How data is trained on; not for a run.
    attacks : sequence of str
        Some of "membership", "canaries", "class-priors", "gradient-inversion"; by default all.
    shadows : int, default=6
        Models that are trained for the membership attacks, for each configuration.
    canaries : int, default=500
        Rows that are added to a run, each with probability 1/2, to bound epsilon from below.
    epsilon : float, default=8
        Epsilon of private rows, if the run has none.
    seed : int, default=0
        Seed of the audit.
    method, algorithm, model : object, optional
        What the run was trained with, if these were objects and `run` is a folder; for data, how to train.
    study : Study, optional
        The data of the run, if `run` is a folder that does not record where its data is from.
    data, priors : str, Path or DataFrame, optional
        Where the data and class priors of the run are now, if they have moved.
    callbacks : sequence of Callback
        Called during the training of models.

    Returns
    -------
    AuditResult
        ``print(result)`` shows what ``fedul federation audit`` prints.

    Raises
    ------
    InputError
        If the run is not finished, its data is missing or has changed, or a setting is wrong.

    Examples
    --------
    >>> import fedul
    >>> run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, method="fedul", seed=0)
    >>> result = fedul.audit(run, attacks=["class-priors"])
    >>> result.class_priors[0].error < result.class_priors[0].guess_error  # without protection
    True
    """
    chosen = check_attacks(attacks)
    check_canaries(canaries)
    if epsilon <= 0:
        raise InputError(f"epsilon: expected a number above 0, got {epsilon:g}.")
    callback = CallbackList(callbacks)
    objects = {"method": method, "algorithm": algorithm, "model": model}
    if isinstance(run, Study | Federation):
        run = train(run, config, method=method, algorithm=algorithm, model=model, callbacks=callbacks)
    elif config is not None:
        raise InputError("config: is that of the run; give it with data only.")
    target = RunTarget.of(run, None if study is None else Study.of(study), objects)
    federation = target.load_study(None, data, priors).federation
    conditions = make_conditions(target.recipe, target.result.selected_round, federation, epsilon)
    plan = _Audit(federation, conditions, chosen, shadows, canaries, seed, callback)
    result = plan.run(
        AuditResult(
            method=target.recipe.config.method,
            algorithm=target.recipe.config.algorithm_name,
            model=target.record.training.model,
            rounds=target.result.selected_round,
            rows=int(federation.columns.train_rows.sum() + federation.columns.held_out_rows.sum()),
            clients=len(federation.clients),
            protections=tuple(condition.protection for condition in conditions),
            seed=seed,
        )
    )
    if target.folder is not None:
        write_json(target.folder.path / AUDIT, result.to_dict())
    return result


def check_attacks(attacks: Sequence[str] = ATTACKS) -> list[Attack]:
    """Return the attacks in their usual order; InputError for an unknown one."""
    if isinstance(attacks, str):
        attacks = [attacks]
    for name in attacks:
        if name not in ATTACKS:
            raise unknown_name("attack", str(name), ATTACKS)
    if not attacks:
        raise InputError("attacks: none is given; leave it out for all.")
    return [name for name in ATTACKS if name in attacks]


@dataclass(frozen=True, eq=False)
class _Audit:
    """The attacks on a run."""

    federation: Federation
    conditions: Sequence[Condition]
    attacks: Sequence[Attack]
    shadows: int
    canaries: int
    seed: int
    callback: Callback

    def run(self, result: AuditResult) -> AuditResult:
        """Return the result with what the attacks find."""
        membership = None
        if "membership" in self.attacks:
            membership = MembershipAttack(self.federation, self.shadows, self.seed)
        usable = {}
        for condition in self.conditions:
            if reason := self._problem(condition):
                result = self._skip(result, self.attacks, condition, reason)
            else:
                usable[condition.protection.name] = condition
        number = self._numbers(len(usable) - ("secure-aggregation" in usable), len(usable))
        for name, condition in usable.items():
            if membership is not None:
                if name == "secure-aggregation":
                    result = self._skip(result, ["membership"], condition, SAME_CLASSIFIER)
                else:
                    found = membership.run(condition, self.callback, lambda _: number("membership"))
                    result = replace(result, membership=result.membership + found)
            if "canaries" in self.attacks:
                seed = key_seed(self.seed, "canaries") % 2**31
                bound = bound_epsilon(
                    self.federation, condition, self.canaries, seed, self.callback, number("canaries")
                )
                result = replace(result, canaries=(*result.canaries, bound))
            if "class-priors" in self.attacks:
                priors = reconstruct_priors(self.federation, condition)
                if isinstance(priors, NotMeasured):
                    result = replace(result, not_measured=(*result.not_measured, priors))
                else:
                    result = replace(result, class_priors=(*result.class_priors, priors))
            if "gradient-inversion" in self.attacks:
                rows = tuple(invert_gradients(self.federation, condition, self.seed))
                result = replace(result, gradient_inversion=result.gradient_inversion + rows)
        return result

    def _problem(self, condition: Condition) -> str:
        """Return why clients cannot train under a protection; empty if they can."""
        if condition.protection.name == "none":
            return ""
        try:
            prepare(self.federation, condition.recipe)
        except FedulError as problem:
            return str(problem)
        return ""

    def _skip(self, result: AuditResult, attacks: Sequence[Attack], condition: Condition, reason: str) -> AuditResult:
        skipped = tuple(NotMeasured(attack, condition.protection.name, reason) for attack in attacks)
        return replace(result, not_measured=result.not_measured + skipped)

    def _numbers(self, with_shadows: int, with_canaries: int) -> Callable[[str], RunInfo]:
        """Return a function that describes the next run that is trained, for the callback."""
        models = with_shadows * self.shadows * ("membership" in self.attacks)
        total = models + with_canaries * ("canaries" in self.attacks)
        numbers: Iterator[int] = iter(range(1, total + 1))
        return lambda title: RunInfo(0, title, next(numbers), total)
