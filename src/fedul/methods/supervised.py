"""Supervised learning with the labels of all rows or of a share of them: the bound, and the paper's "FedAvg 10%".

McMahan et al., AISTATS 2017, with cross-entropy on z + log(s / pi), where s is the client's own class mix: plain
cross-entropy would learn each client's mix, and clients that differ would pull apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedul.errors import InputError
from fedul.federation import Agreed, Federation, UnlabeledSets, float_type
from fedul.methods.base import Method, Predict, Step, Targets, Task, cross_entropies, prior_shift
from fedul.randomness import numpy_generator
from fedul.settings import check, option
from fedul.truth import Labels, Truth


@dataclass(frozen=True)
class Supervised(Method):
    """Minimise cross-entropy on true labels, corrected for the client's class mix."""

    labels: float = option(1.0, "Share of the rows whose label is known.", low=1e-6, high=1)
    truth: Truth | None = None
    seed: int = 0

    at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    def task(self, client: UnlabeledSets, agreed: Agreed) -> Task:
        device = client.inputs.device
        known = self.known(client)
        labels = self._labels(client)[known]
        mix = np.bincount(labels, minlength=len(agreed.classes)) / len(labels)
        label = torch.from_numpy(labels).to(device)
        offset = prior_shift(mix, agreed.test_prior).to(device, float_type(client.inputs))

        index = client.train.index[torch.from_numpy(known)].to(device)
        targets = Targets({"label": label}, client={"offset": offset})
        return Task(client.inputs, index, targets, agreed.scaling)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs) + step.shared["offset"]
        return step.mean(cross_entropies(logits, step.targets["label"]))

    def known(self, client: UnlabeledSets) -> Labels:
        """Positions of the training rows whose label is known; a row that is in several sets counts as one."""
        index = client.train.index.numpy()
        distinct = np.unique(index)
        count = max(1, round(self.labels * len(distinct)))
        chosen = numpy_generator(self.seed, "labels", client.name).permutation(distinct)[:count]
        return np.flatnonzero(np.isin(index, chosen))

    def labels_used(self, federation: Federation) -> int:
        """Number of distinct rows whose label the federation uses."""
        rows = {(c.inputs.data_ptr(), int(i)) for c in federation.clients for i in c.train.index.numpy()[self.known(c)]}
        return len(rows)

    def _labels(self, client: UnlabeledSets) -> Labels:
        if self.truth is None:
            raise InputError(
                "method supervised: needs the labels of a study; this federation has none. Use method fedul."
            )
        return self.truth.train_labels[client.name]
