"""Supervised learning with the labels of all rows or of a share of them, as an upper bound for methods without labels.

McMahan et al., AISTATS 2017, with cross-entropy on z + log(s / pi), where s is the class mix of the client: plain
cross-entropy would learn the class mix of each client, and the models of clients that differ would drift apart. With
labels = 0.1 it is the "FedAvg 10%" of Lu et al., ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedul._utils.randomness import numpy_generator
from fedul._utils.settings import option
from fedul.core import Federation, Labels, Matrix, TaskSpec, Truth, UnlabeledSets, compute_dtype
from fedul.errors import InputError
from fedul.methods.base import Method
from fedul.methods.operations import cross_entropies, prior_shift
from fedul.methods.task import Predict, Step, Targets, Task


@dataclass(frozen=True)
class Supervised(Method):
    """Minimise the cross-entropy on true labels, corrected for the class mix of the client.

    Parameters
    ----------
    labels : float, default=1.0
        Share of the rows whose label is known.
    truth : Truth or None
        Labels of research data; set by the run.
    seed : int, default=0
        Seed of the choice of labelled rows; set by the run.
    """

    labels: float = option(1.0, "Share of the rows whose label is known.", low=1e-6, high=1)
    truth: Truth | None = None
    seed: int = 0

    vectorized: ClassVar[bool] = True
    needs_truth: ClassVar[bool] = True

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return RowPrivateSupervised(**{f.name: getattr(self, f.name) for f in fields(self)}), ()

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        device = client.inputs.device
        known = self.labelled_rows(client)
        if self.truth is None:
            raise InputError(
                "method supervised: needs the labels of a study, and this federation has none; use method fedul."
            )
        labels = self.truth.train_labels[client.name][known]
        mix = self.class_mix(client, labels)
        label = torch.from_numpy(labels).to(device)
        offset = prior_shift(mix, spec.test_prior).to(device, compute_dtype(client.inputs))

        index = client.train.index[torch.from_numpy(known)].to(device)
        targets = Targets({"label": label}, client={"offset": offset})
        return Task(client.inputs, index, targets, spec.scaling)

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs) + step.shared["offset"]
        return step.mean(cross_entropies(logits, step.targets["label"]))

    def class_mix(self, client: UnlabeledSets, labels: Labels) -> Matrix:
        """Return the class mix (K,) of the labelled rows."""
        mix: Matrix = np.bincount(labels, minlength=len(client.class_mix)) / len(labels)
        return mix

    def labelled_rows(self, client: UnlabeledSets) -> Labels:
        """Return the positions of the training rows whose label is known; a row in several sets counts as one."""
        index = client.train.index.numpy()
        distinct = np.unique(index)
        count = max(1, round(self.labels * len(distinct)))
        chosen = numpy_generator(self.seed, "labels", client.name).permutation(distinct)[:count]
        return np.flatnonzero(np.isin(index, chosen))

    def labels_used(self, federation: Federation) -> int:
        pairs = ((c.inputs.data_ptr(), c.train.index.numpy()[self.labelled_rows(c)]) for c in federation.clients)
        return len({(source, int(i)) for source, index in pairs for i in index})


@dataclass(frozen=True)
class RowPrivateSupervised(Supervised):
    """Supervised learning with private rows: the class mix of a client is that of its class priors, not of its labels.

    With counts of labels as class priors it is supervised learning.
    """

    def row_private(self) -> tuple[Method, Sequence[str]]:
        return self, ()

    def class_mix(self, client: UnlabeledSets, labels: Labels) -> Matrix:
        return client.class_mix
