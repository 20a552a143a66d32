"""How threads of OpenMP wait for each other, which is fixed when torch is loaded."""

from __future__ import annotations

from collections.abc import MutableMapping

WAIT_POLICY = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "3000"}
"""Threads sleep while they wait. Those of GNU's library look for work for some 30 microseconds before, which is longer
than the pause between two operations and shorter than the share of the processor that another program gets. With the
default of a hundred times as long, one other program on two cores makes small networks 80 times slower."""


def set_wait_policy(environment: MutableMapping[str, str]) -> None:
    """Set the policy in an environment, unless the user has set a part of it.

    >>> ours, theirs = {}, {"OMP_WAIT_POLICY": "active"}
    >>> set_wait_policy(ours), set_wait_policy(theirs)
    (None, None)
    >>> sorted(ours), theirs
    (['GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'], {'OMP_WAIT_POLICY': 'active'})
    """
    if not environment.keys() & WAIT_POLICY.keys():
        environment.update(WAIT_POLICY)
