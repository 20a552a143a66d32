"""Checks of updates from sites, which may be faulty or malicious; a rejected update comes with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fedul.core import Update, UpdateSpec, Weights
from fedul.engines.flower.protocol.documents import TrainReply
from fedul.engines.flower.protocol.message import Message

MAX_NORM_RATIO = 100.0
"""Largest norm of an update relative to the usual norm. It is generous: a site may take many more steps than others."""

MAX_LOSS = 1e6


class RejectedReply(ValueError):
    """A reply that is not accepted, with the reason."""


@dataclass(frozen=True, eq=False)
class UpdateChecks:
    """Checks of an update against its declaration and against what is known about the site.

    Parameters
    ----------
    weights : dict of str to Tensor
        Global weights.
    spec : UpdateSpec
        Declaration of the update as it leaves a site.
    """

    weights: Weights
    spec: UpdateSpec

    @property
    def max_bytes(self) -> int:
        """Largest size of a reply: everything that is declared, and room for headers."""
        return 2 * self.spec.nbytes + 2**20

    def read_update(self, site: str, reply: Message, rows: int, steps: float) -> Update:
        """Return the update in a reply.

        Parameters
        ----------
        site : str
            Name of the site.
        reply : Message
            Its reply.
        rows : int
            Rows that it trains on, as it reported when it joined.
        steps : float
            Effective steps that follow from them.

        Raises
        ------
        RejectedReply
            If anything in the reply differs from what is declared or expected.
        """
        claimed = reply.read(TrainReply)
        groups = {name: reply.group(name) for name in ("delta", "buffers", "message")}
        update = Update(site, rows=rows, steps=steps, loss=claimed.loss, **groups)
        if problem := self.spec.problem(update):
            raise RejectedReply(problem)
        for group in groups.values():
            for name, tensor in group.items():
                if not bool(tensor.isfinite().all()):
                    raise RejectedReply(f"'{name}' holds values that are not finite")
        for name, change in update.buffers.items():
            if name.endswith("running_var") and bool((self.weights[name] + change < 0).any()):
                raise RejectedReply(f"'{name}' would be a negative variance")
        if claimed.loss is not None and abs(claimed.loss) > MAX_LOSS:
            raise RejectedReply(f"its loss is {claimed.loss:g}")
        if claimed.rows != rows or claimed.steps != steps:
            raise RejectedReply(
                f"it claims {claimed.rows} rows and {claimed.steps:g} steps, where {rows} and {steps:g} are expected"
            )
        return update


def find_oversized(updates: Sequence[Update], previous_norm: float | None) -> dict[str, str]:
    """Return the sites whose updates are too large, with the reason.

    The norm is compared with the median of the others; with fewer than two others, with `previous_norm`, the mean
    norm of the previous round.
    """
    oversized = {}
    for group in ("delta", "message", "buffers"):
        norms = {update.client: update_norm(getattr(update, group)) for update in updates}
        for site, norm in norms.items():
            others = [each for name, each in norms.items() if name != site]
            reference = median(others) if len(others) >= 2 else previous_norm if group == "delta" else None
            if reference and norm > MAX_NORM_RATIO * reference:
                oversized[site] = f"its update is {norm / reference:.0f} times as large as usual"
    return oversized


def update_norm(tensors: Weights) -> float:
    """Return the Euclidean norm of all tensors as one vector."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))
