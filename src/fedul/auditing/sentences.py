"""Sentences about an audit, written once for the command line, Python and the report.

They say what was measured here, and no more: that no attack succeeded does not mean that none can.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedul._utils.display import counted
from fedul.auditing.document import (
    AuditResult,
    CanaryResult,
    InversionResult,
    MembershipResult,
    PriorResult,
    ProtectionName,
)
from fedul.core import SIGNIFICANCE

LIMITS = (
    "These are the attacks that fedul knows, on this configuration. An attack that fails here does not show that the "
    "data is safe: other attackers may know more or do better."
)
EXACT = 0.001
"""Error below which a reconstruction is called exact."""
UNDER: dict[ProtectionName, str] = {
    "none": "Without protection",
    "dp": "With differential privacy of rows",
    "secure-aggregation": "With secure aggregation",
}


def audit_sentences(result: AuditResult) -> Sequence[str]:
    """Return what the numbers of an audit mean, one sentence or two for each attack and protection."""
    found = [_membership(each) for each in result.membership if each.attack == "likelihood ratio"]
    found += [_canaries(each) for each in result.canaries]
    found += [_priors(each) for each in result.class_priors]
    found += [_inversion(each) for each in result.gradient_inversion]
    return [*found, LIMITS]


def _membership(result: MembershipResult) -> str:
    under = UNDER[result.protection]
    numbers = f"AUC {result.auc:.2f}, {result.auc_low:.2f} to {result.auc_high:.2f}"
    if result.auc_low <= 0.5:
        return (
            f"{under}, comparing the classifier with {result.models - 1} others did not tell which rows it was trained "
            f"on ({numbers}; 0.5 is guessing)."
        )
    return (
        f"{under}, someone who has the classifier, a row and its set tells better than by guessing whether it was "
        f"trained on the row ({numbers}): with 1 % false alarms, {result.tpr:.1%} of the members are found."
    )


def _canaries(result: CanaryResult) -> str:
    under = UNDER[result.protection]
    right = f"{result.correct:,} of {result.guesses:,} guesses about added rows are right"
    if not result.bound:
        shown = "which excludes no epsilon"
    else:
        shown = f"which excludes an epsilon below {result.bound:.2f} with 95 % confidence"
    if result.stated is None:
        return f"{under}, {right}, {shown}; no epsilon is stated."
    if result.bound > result.stated:
        return (
            f"{under}, {right}, {shown}. The run states {result.stated:.2f}: this is a contradiction, and the stated "
            "guarantee does not hold; please report it."
        )
    stated = f"The run states {result.stated:.2f}, which this does not contradict"
    if result.highest <= result.stated:
        stated += f"; {result.canaries:,} canaries could not, because they exclude at most {result.highest:.2f}"
    return f"{under}, {right}, {shown}. {stated}."


def _priors(result: PriorResult) -> str:
    under = UNDER[result.protection]
    what = "a coordinator that evaluates weights of its choice at sites that answer everything"
    errors = f"mean error {_short(result.error)}, guessing {_short(result.guess_error)}"
    if result.error < EXACT:
        return f"{under}, {what} finds the class priors of every client exactly ({errors})."
    if result.p_value >= SIGNIFICANCE:
        return (
            f"{under}, {what} finds class priors no better than by guessing the published shares ({errors}; closer in "
            f"{result.wins} of {result.compared} cases, p = {result.p_value:.2g})."
        )
    sentence = (
        f"{under}, {what} finds class priors better than by guessing the published shares ({errors}; closer in "
        f"{result.wins} of {result.compared} cases, p = {result.p_value:.2g})."
    )
    if result.protection == "secure-aggregation":
        sentence += (
            " Totals tell how shares are distributed over the sets of all clients; knowing only this gives "
            f"an error of {_short(result.pooled_error)}"
        )
        sentence += ", less than the attack." if result.pooled_error <= result.error else ", more than the attack."
    return sentence


def _inversion(result: InversionResult) -> str:
    under = UNDER[result.protection]
    rows = counted(result.batch, "row")
    of = f"the update of one client with a batch of {rows}"
    if result.clients > 1:
        of = f"the sum of the updates of {result.clients} clients, each with a batch of {rows}"
    if result.recovered == 1 and result.error < EXACT:
        return f"{under}, {of} gives {'the row' if result.batch * result.clients == 1 else 'all rows'} exactly."
    distance = f"median distance {result.error:.2f} of that of the mean row"
    if result.recovered:
        return f"{under}, {of} gives {result.recovered:.0%} of the rows almost exactly ({distance})."
    if result.error < 1:
        return f"{under}, {of} gives no row almost exactly, but rows closer than the mean row ({distance})."
    return f"{under}, the attack on {of} did no better than guessing the mean row ({distance})."


def _short(value: float) -> str:
    return f"{value:.3f}" if value >= EXACT else "below 0.001"
