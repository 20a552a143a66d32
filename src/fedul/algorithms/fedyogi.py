"""FedYogi: FedAdam with a second moment that changes by additive steps.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm 2 (after Zaheer et al., NeurIPS 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedul.algorithms.fedadam import FedAdam


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam with the second moment ``v - (1 - beta_2) * square * sign(v - square)``.

    Parameters are those of `FedAdam`.
    """

    def second_moment(self, before: Tensor, square: Tensor) -> Tensor:
        return before - (1 - self.memory) * square * (before - square).sign()
