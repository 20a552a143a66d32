"""Soft-label EM: expectation-maximisation on the likelihood of FedUL, with one E-step per round.

Dempster, Laird and Rubin, Maximum Likelihood from Incomplete Data via the EM Algorithm, 1977, on the model of Lu et
al., ICLR 2022. E-step: at the start of a round the client computes the posterior of each row given its set with the
global model, r_k proportional to Pi_mk f_k / pi_k. M-step: the steps of the round minimise the cross-entropy between r
and softmax(z + log(s/pi)), where s is the class mix of the client. Its gradient at the start of a round is that of
-log Q of FedUL, since both are softmax(z + log(s/pi)) - r in the logits. Later in the round r lags behind. With one-hot
priors it is supervised learning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from fedul.core import TaskSpec, UnlabeledSets
from fedul.methods.base import ClientState, Method
from fedul.methods.fedul import set_task
from fedul.methods.operations import soft_cross_entropies
from fedul.methods.task import Predict, Step, Targets, Task, take_rows


@dataclass(frozen=True)
class SoftEM(Method):
    """Minimise the cross-entropy on the posteriors of the rows given their sets, computed once per round.

    With one-hot priors it is supervised learning.
    """

    vectorized: ClassVar[bool] = True
    uses_transition: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        return set_task(client, client.train, spec)

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return True

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        soft = (logits + take_rows(targets.sets["joint"], targets.rows["set"])).softmax(-1)  # (..., n, K)
        return replace(targets, rows={**targets.rows, "soft": soft}), client_state

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs) + step.shared["marginal"]
        return step.mean(soft_cross_entropies(logits, step.targets["soft"]))
