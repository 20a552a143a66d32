"""A client with differential privacy of its rows: random batches, and clipped gradients with noise.

The loss, the size of a batch and everything else that is computed from rows stay here. What leaves are noisy sums of
gradients, divided by the *expected* size of a batch. Optimizer, penalties and terms of the algorithm come after the
noise, so they cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedul._utils import torch_private
from fedul.config import TrainConfig
from fedul.engines.simulation.trainable_network import Loss, StepGradients
from fedul.methods.sampled_steps import sampled_steps
from fedul.methods.task import Step, Task, step_sizes
from fedul.privacy.dp_sgd.noise import add_noise
from fedul.privacy.dp_sgd.row_gradients import RowGradients, row_gradients
from fedul.privacy.dp_sgd.sampling import BatchSampler
from fedul.privacy.dp_sgd.stream import RandomStream
from fedul.privacy.row_privacy import RowPrivacy, steps_of_epoch


class PrivateClient:
    """The network of one client in a round, see `TrainableNetwork`.

    Parameters
    ----------
    gradients : RowGradients
        The network.
    privacy : RowPrivacy
        How much noise is added.
    task : Task
        The rows.
    stream : RandomStream
        Source of batches and noise.
    """

    leading = 0

    def __init__(self, gradients: RowGradients, privacy: RowPrivacy, task: Task, stream: RandomStream) -> None:
        self.names, self.parameters = gradients.names, gradients.parameters
        self._gradients, self._privacy, self._task, self._stream = gradients, privacy, task, stream
        self._expected_rows = privacy.rate * len(task)

    def steps(self, augment: str) -> Iterator[Step]:
        """Yield the steps of the round, each with a random batch that may be empty."""
        sampler = BatchSampler(self._task.index[: len(self._task)], self._privacy.rate, self._stream)
        batches = (sampler.draw() for _ in range(self._privacy.steps))
        # Random targets and augmentations have a seed that nobody knows, like the noise.
        return sampled_steps(self._task, batches, torch.Generator().manual_seed(self._stream.seed()), augment)

    def differentiate(self, loss_of: Loss, step: Step) -> StepGradients:
        clip, total = self._privacy.clip, [torch.zeros_like(p) for p in self.parameters]
        for part in _parts(step, self._gradients.chunk):
            loss = loss_of(self._gradients.predict, part) * len(part.inputs)  # divided by the rows
            torch_private.add_(total, self._gradients.clipped_sum(loss, clip))
        noisy = add_noise(total, self._privacy.noise * clip, self._stream)
        return StepGradients(self.parameters, [each / self._expected_rows for each in noisy], None)


class PrivateClients:
    """Makes the private clients of a module.

    Parameters
    ----------
    module : nn.Module
        The network.
    seed : int
        Seed of the run, for clients whose noise is seeded.
    """

    def __init__(self, module: nn.Module, seed: int) -> None:
        self._gradients, self._seed = row_gradients(module), seed

    def client(self, name: str, number: int, task: Task, privacy: RowPrivacy) -> PrivateClient:
        """Return a client in the round of this number, with a random stream of its own."""
        stream = RandomStream.from_system()
        if privacy.seeded:
            stream = RandomStream.from_seed(self._seed, number, name, "private rows")
        return PrivateClient(self._gradients, privacy, task, stream)


def count_local_steps(config: TrainConfig, rows: int) -> int:
    """Return the local steps of a round of a client with this many rows; they do not depend on random batches.

    >>> plain, private = TrainConfig(epochs=2), TrainConfig(epochs=2, dp_noise=1.0)
    >>> count_local_steps(plain, 33), count_local_steps(private, 33)  # batches of 33 rows, and of 16.5 on average
    (2, 4)
    """
    one = steps_of_epoch(rows, config.batch_size) if config.protects_rows else len(step_sizes(rows, config.batch_size))
    return config.epochs * one


def _parts(step: Step, rows: int) -> Iterator[Step]:
    """Yield the rows of a step in parts of at most this many; none if the step is empty."""
    if 0 < len(step.inputs) <= rows:
        yield step
        return
    for first in range(0, len(step.inputs), rows):
        part = slice(first, first + rows)
        targets: dict[str, Tensor] = {name: values[part] for name, values in step.targets.items()}
        inputs, weight = step.inputs[part], step.weight
        if weight is not None:  # as a mean over the rows of the part
            weight = weight[part] * (len(step.inputs) / len(inputs))
        yield Step(inputs, targets, step.shared, weight)
