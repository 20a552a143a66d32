"""The transition Q_c: from a class posterior to the posterior of a client's sets (Theorem 1 of the paper).

With logits z (softmax(z) = eta, the class posterior under the test prior pi), class priors Pi, set priors
pibar and the client's class mix s = Pi^T pibar,

    Q_m = pibar_m sum_k Pi_mk eta_k / pi_k  /  sum_k s_k eta_k / pi_k,

so -log Q_m is a difference of two log-sum-exps over the K classes: O(n K) for any number of sets.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedul.core.priors import Matrix


def set_loss(logits: Tensor, joint: Tensor, marginal: Tensor) -> Tensor:
    """Return -log Q of each row's set (n,).

    Parameters
    ----------
    logits : Tensor of shape (n, K)
        Class logits.
    joint : Tensor of shape (n, K)
        `Transition.joint` at each row's set.
    marginal : Tensor of shape (K,)
        `Transition.marginal`.

    Examples
    --------
    >>> t = Transition(torch.eye(2), torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]))
    >>> set_loss(torch.zeros(1, 2), t.joint[[0]], t.marginal)  # one-hot priors: cross-entropy, here log 2
    tensor([0.6931])
    """
    return (logits + marginal).logsumexp(-1) - (logits + joint).logsumexp(-1)


class Transition(nn.Module):
    """Transition Q_c of one client as a fixed layer: log posterior of every set from class logits.

    Parameters
    ----------
    priors : Tensor or ndarray of shape (M, K)
        Class priors; they may have zeros.
    set_priors : Tensor or ndarray of shape (M,)
        Set priors, positive.
    test_prior : Tensor or ndarray of shape (K,)
        Test prior, positive.

    Examples
    --------
    >>> transition = Transition([[0.9, 0.1], [0.2, 0.8]], set_priors=[0.5, 0.5], test_prior=[0.5, 0.5])
    >>> transition(torch.tensor([[0.0, 0.0]])).exp()  # without evidence, both sets are as likely
    tensor([[0.5000, 0.5000]])
    >>> transition(torch.tensor([[50.0, 0.0]])).exp()  # a row that is surely of the first class: 0.9 to 0.2
    tensor([[0.8182, 0.1818]])
    """

    joint: Tensor
    marginal: Tensor

    def __init__(self, priors: Tensor | Matrix, set_priors: Tensor | Matrix, test_prior: Tensor | Matrix) -> None:
        super().__init__()
        pi, pibar, test = (torch.as_tensor(t) for t in (priors, set_priors, test_prior))
        log_test = test.double().log()
        # Computed in float64 and stored in the precision of `priors`. Zero entries become -inf, so that log-sum-exp
        # leaves out the classes that cannot occur in the set.
        precision = torch.result_type(pi, 1.0)  # a floating type, also where one-hot priors are integers
        weighted = pibar.double()[:, None] * pi.double()  # (M, K)
        joint = weighted.log() - log_test  # log(pibar_m Pi_mk / pi_k)
        marginal = weighted.sum(0).log() - log_test  # log(s_k / pi_k)
        # Not persistent: the class priors stay at the client even if a model's state is sent or saved.
        self.register_buffer("joint", joint.to(precision), persistent=False)
        self.register_buffer("marginal", marginal.to(precision), persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        """Return log Q (..., M) from logits (..., K)."""
        rows = (logits.unsqueeze(-2) + self.joint).logsumexp(-1)
        return rows - (logits + self.marginal).logsumexp(-1, keepdim=True)
