"""The chain of steps that a client's update passes through before it leaves the client.

A step may clip, add noise, compress or mask. It also transforms the declaration of the update, so that the coordinator
checks what it receives against what was declared. Without privacy options the chain is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedul.config import TrainConfig
from fedul.core import Update, UpdateSpec


@dataclass(frozen=True)
class UpdateContext:
    """Where an update is from.

    Parameters
    ----------
    client : str
        Name of the client.
    round : int
        Number of the round, from 1.
    seed : int
        Seed of the run.
    clips : mapping of str to float
        Largest norm of each group of its tensors (`fedul.privacy.clipping`); empty if nothing is clipped.
    """

    client: str
    round: int
    seed: int
    clips: Mapping[str, float] = field(default_factory=dict)


class UpdateStep:
    """One step of the chain. A step is a pure function of the update and its context."""

    def declare(self, spec: UpdateSpec) -> UpdateSpec:
        """Return the declaration of the update after this step."""
        return spec

    def apply(self, update: Update, context: UpdateContext) -> Update:
        """Return the update after this step."""
        return update


@dataclass(frozen=True)
class UpdateChain:
    """Steps that are applied in order; without steps it is the identity.

    Parameters
    ----------
    steps : tuple of UpdateStep
        The steps, first to last.
    """

    steps: tuple[UpdateStep, ...] = ()

    def declare(self, spec: UpdateSpec) -> UpdateSpec:
        """Return the declaration of an update that has passed through the chain."""
        for step in self.steps:
            spec = step.declare(spec)
        return spec

    def apply(self, update: Update, context: UpdateContext) -> Update:
        """Return the update as it leaves the client."""
        for step in self.steps:
            update = step.apply(update, context)
        return update


def build_update_chain(config: TrainConfig) -> UpdateChain:
    """Return the chain that a configuration asks for; coordinator and clients build the same one."""
    from fedul.privacy.clipping import ClipUpdates  # its steps import this module

    return UpdateChain((ClipUpdates(config.client_dp_quantile is not None),) if config.protects_clients else ())
