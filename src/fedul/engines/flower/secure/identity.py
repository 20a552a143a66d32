"""Identity keys of sites in secure aggregation: what they sign, and how it is verified."""

from __future__ import annotations

from fedul.engines.flower.identity.roster import Roster

CONTEXT = "secure aggregation"
"""Purpose of the signatures; one for another purpose is not valid here."""


def verifies(roster: Roster, name: str, statement: bytes, signature: bytes) -> bool:
    """Return whether the key that the roster has for a name made a signature; False for a name that it lacks."""
    return name in roster.keys and roster.keys[name].is_signature(CONTEXT, statement, signature)


def aggregation_run(run: str, resumption: int) -> str:
    """Return the name of a run in its aggregations; a run that was resumed has another one."""
    return f"{run}/{resumption}"
