"""What a site replies when its privacy budget does not suffice, and how the coordinator recognises it."""

from __future__ import annotations

from collections.abc import Mapping

from fedul.privacy.ledger import BudgetSpent

SETTINGS = ("dp-epsilon", "row-epsilon")
"""Settings that give a budget: of the run at the coordinator, and of the site in all runs."""


def spent_budget(setting: str) -> str:
    """Return the reply of a site whose budget does not suffice.

    >>> spent_budget("dp-epsilon")
    'its privacy budget (dp-epsilon) does not suffice'
    """
    return f"its privacy budget ({setting}) does not suffice"


def raise_if_all_spent(errors: Mapping[str, str]) -> None:
    """Raise BudgetSpent if no site replies for another reason than a spent budget.

    Parameters
    ----------
    errors : mapping of str to str
        The sites that did not send an update, with the reason.
    """
    for setting in SETTINGS:
        if errors and all(spent_budget(setting) in reason for reason in errors.values()):
            sites = ", ".join(sorted(errors))
            raise BudgetSpent(f"the privacy budget of {sites} is spent ({setting}).", setting)
