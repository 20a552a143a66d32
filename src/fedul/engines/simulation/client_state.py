"""State of a client between rounds: that of the method and that of the algorithm, in one mapping."""

from __future__ import annotations

from fedul.core import Weights


def join_client_state(method_state: Weights, algorithm_state: Weights) -> Weights:
    """Return the states of the method and of the algorithm as one, with prefixed names."""
    groups = {"method": method_state, "algorithm": algorithm_state}
    return {f"{owner}/{name}": tensor for owner, group in groups.items() for name, tensor in group.items()}


def split_client_state(client_state: Weights) -> tuple[Weights, Weights]:
    """Return the state of the method and the state of the algorithm."""
    method, algorithm = (
        {name.removeprefix(owner): tensor for name, tensor in client_state.items() if name.startswith(owner)}
        for owner in ("method/", "algorithm/")
    )
    return method, algorithm
