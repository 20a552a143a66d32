"""Refusal of weights that give every row the same answer.

The held-out loss and the gradient of such a network do not depend on the rows, but on class priors and set sizes only.
A coordinator that sends it can solve for the priors (docs/privacy/threat-model.md). No network that has learned
something is like that. What the output says about a row is measured by the mean divergence of the predictions from
their mean,

    mean_i KL(p_i || mean_j p_j),

the mutual information of row and predicted class. A coordinator that adds a little noise to such weights passes the
check and learns the priors less exactly, so this is no protection by itself: secure aggregation is one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedul.core import PREDICT_BATCH, TaskSpec, UnlabeledSets, Weights
from fedul.engines.flower.site.public_error import PublicError
from fedul.models.weights import load_weights

LEAST_INFORMATION = 1e-10
"""Nats about the predicted class that a row must give on average.

Rounding alone gives about 1e-14. The start weights of `paper-cnn` give 1e-7, those of the other networks far more.
"""


@torch.no_grad()
def refuse_degenerate(module: nn.Module, weights: Weights, client: UnlabeledSets, spec: TaskSpec) -> None:
    """Raise a PublicError if a network gives all rows of a site, or all but a few, the same answer.

    Parameters
    ----------
    module : nn.Module
        The network; it has the weights afterwards.
    weights : dict of str to Tensor
        Its weights.
    client : UnlabeledSets
        The rows of the site, a part of which is predicted.
    spec : TaskSpec
        Scaling of the rows.
    """
    load_weights(module, weights)
    rows = client.all_rows.index
    some = rows[torch.linspace(0, len(rows) - 1, min(len(rows), PREDICT_BATCH)).long()]
    was_training = module.training
    logits = module.eval()(spec.scaling(client.inputs[some]))
    module.train(was_training)
    if not mutual_information(logits) > LEAST_INFORMATION:
        raise PublicError("these weights give every row the same answer, as no honest run's do")


def mutual_information(logits: Tensor) -> float:
    """Return the mutual information of row and predicted class in nats, for logits (n, K); NaN if they are not finite.

    >>> mutual_information(torch.tensor([[0.0, 3.0]] * 5))
    0.0
    >>> round(mutual_information(torch.tensor([[0.0, 99.0], [99.0, 0.0]])), 4)  # one bit
    0.6931
    """
    probabilities = logits.double().softmax(-1)
    mean = probabilities.mean(0)
    entropies = [-torch.special.xlogy(p, p).sum(-1).mean() for p in (probabilities, mean)]
    return max(float(entropies[1] - entropies[0]), 0.0) if bool(logits.isfinite().all()) else float("nan")
