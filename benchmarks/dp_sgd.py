"""A local step with private rows (DP-SGD) compared with a plain one, and with Opacus.

    python benchmarks/dp_sgd.py [--rows 64,256] [--times 30] [--json]

Both networks take the same steps on the same rows, with Adam, in one thread, alternately. "clipping" is the private
step without noise, "noise" is the noise alone, "private" has both. The vectorized step is that of five plain clients
at once, divided by five, as small networks train in the simulation. Opacus (extra `bench`) sums gradients of single
rows, or clips with two backward passes ("ghost"); its optimizer draws noise with a generator of torch.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from torch import Tensor, nn

from _measure import Quartiles, compare_to_target, describe_machine, make_parser, print_result, time_alternating
from fedul import models
from fedul.config import TrainConfig
from fedul.core import TaskSpec, UnlabeledSets
from fedul.engines.simulation.local_steps import GradientCorrection, run_local_steps
from fedul.engines.simulation.private_client import PrivateClient
from fedul.engines.simulation.trainable_network import SingleClient, TrainableNetwork
from fedul.engines.simulation.vectorized import VectorizedNetwork
from fedul.engines.simulation.vectorized_forward import vectorized_forward
from fedul.methods.fedul import FedUL
from fedul.methods.task import Step, Task
from fedul.models.weights import weights_of
from fedul.privacy.dp_sgd.noise import add_noise
from fedul.privacy.dp_sgd.row_gradients import row_gradients
from fedul.privacy.dp_sgd.stream import RandomStream
from fedul.privacy.row_privacy import RowPrivacy

NETWORKS = {"mlp": ((1, 8, 8), 4.0), "small-cnn": ((1, 28, 28), 3.0)}
"""Networks with the shape of a row, and the target for the ratio of a private and a plain step."""
CLASSES, SETS, CLIENTS = 10, 10, 5
CLIP, NOISE = 1.0, 1.0
SECONDS = 0.1
"""Duration of one measurement, about."""


def client_task(shape: tuple[int, ...], rows: int, seed: int) -> Task:
    """Return the task of FedUL of a client with random rows and priors."""
    generator = np.random.default_rng(seed)
    inputs = generator.random((rows, *shape), dtype=np.float32)
    priors = generator.dirichlet(np.ones(CLASSES), SETS)
    client = UnlabeledSets.from_arrays("client", inputs, np.arange(rows) % SETS, priors, held_out=0)
    return FedUL().task(client, TaskSpec([str(k) for k in range(CLASSES)], np.full(CLASSES, 1 / CLASSES), shape))


def take_steps(network: TrainableNetwork, step: Step, count: int) -> None:
    """Take local steps with Adam on the same rows."""
    correction = GradientCorrection(None, dict(zip(network.names, network.parameters, strict=True)), network)
    run_local_steps(network, [step] * count, FedUL(), TrainConfig(), correction)


def private_client(module: nn.Module, task: Task, noise: float) -> PrivateClient:
    """Return a client with private rows."""
    privacy = RowPrivacy(noise, CLIP, rate=1.0, steps=1)
    return PrivateClient(row_gradients(module), privacy, task, RandomStream.from_system())


def vectorized_steps(module: nn.Module, shape: tuple[int, ...], rows: int) -> Callable[[int], None] | None:
    """Return a function that takes steps of several plain clients at once; None for networks that train in a loop."""
    forward = vectorized_forward(module, shape)
    if forward is None or any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        return None
    trainable = {name: p.shape for name, p in module.named_parameters()}
    network = VectorizedNetwork(forward, weights_of(module), trainable, CLIENTS)
    steps = [client_task(shape, rows, seed).step(torch.arange(rows)) for seed in range(CLIENTS)]
    targets = {name: torch.stack([each.targets[name] for each in steps]) for name in steps[0].targets}
    shared = {name: torch.stack([each.shared[name] for each in steps]) for name in steps[0].shared}
    shared["marginal"] = shared["marginal"].unsqueeze(1)
    stacked = Step(torch.stack([each.inputs for each in steps]), targets, shared)
    return partial(take_steps, network, stacked)


def opacus_steps(module: nn.Module, step: Step, *, ghost: bool) -> Callable[[int], None]:
    """Return a function that takes private steps with Opacus."""
    from opacus import GradSampleModule
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    rows = len(step.inputs)
    settings = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "expected_batch_size": rows}
    if not ghost:
        network = GradSampleModule(module)
        optimizer: Any = DPOptimizer(torch.optim.Adam(network.parameters(), 3e-3), **settings)

        def loss_of() -> Any:
            return FedUL().loss(network, step)
    else:
        network = GradSampleModuleFastGradientClipping(module, max_grad_norm=CLIP, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(torch.optim.Adam(network.parameters(), 3e-3), **settings)

        class RowLosses:
            reduction = "mean"

            def __call__(self, logits: Tensor, targets: Tensor, shape: Any = None) -> Tensor:
                from fedul.methods.fedul import log_loss

                return log_loss(logits, step)

        criterion = DPLossFastGradientClipping(network, optimizer, RowLosses(), "mean")

        def loss_of() -> Any:
            return criterion(network(step.inputs), step.targets["set"])

    def take(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            loss_of().backward()
            optimizer.step()

    return take


def draw_noise(module: nn.Module, count: int) -> None:
    """Draw the noise of several steps."""
    stream, sums = RandomStream.from_system(), [torch.zeros_like(p) for p in module.parameters()]
    for _ in range(count):
        add_noise(sums, NOISE * CLIP, stream)


def measure(name: str, rows: int, times: int) -> dict[str, Any]:
    """Return the time of a step of each kind for one network and number of rows."""
    shape, target = NETWORKS[name]
    task = client_task(shape, rows, 0)
    step = task.step(torch.arange(rows))

    def network() -> nn.Module:
        module = models.build(name, shape, CLASSES, 0)
        if any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return copy.deepcopy(module)

    kinds: dict[str, Callable[[int], object] | None] = {
        "plain": partial(take_steps, SingleClient(network(), "float32"), step),
        "private": partial(take_steps, private_client(network(), task, NOISE), step),
        "clipping": partial(take_steps, private_client(network(), task, 0.0), step),
        "noise": partial(draw_noise, network()),
        "plain, vectorized": vectorized_steps(network(), shape, rows),
    }
    try:
        kinds["opacus"] = opacus_steps(models.build(name, shape, CLASSES, 0), step, ghost=False)
        kinds["opacus, ghost"] = opacus_steps(models.build(name, shape, CLASSES, 0), step, ghost=True)
    except ImportError:
        pass
    chosen = {kind: take for kind, take in kinds.items() if take is not None}
    count = _count_steps(chosen["private"])
    taken = time_alternating({kind: partial(take, count) for kind, take in chosen.items()}, times)
    share = {kind: CLIENTS if kind == "plain, vectorized" else 1 for kind in chosen}
    seconds = {kind: [each / count / share[kind] for each in values] for kind, values in taken.items()}
    ratios = {
        kind: Quartiles.of([ours / plain for ours, plain in zip(values, seconds["plain"], strict=True)])
        for kind, values in seconds.items()
    }
    return {
        "network": name,
        "rows": rows,
        "steps": count,
        "target": target,
        "seconds": {kind: Quartiles.of(values).to_dict() for kind, values in seconds.items()},
        "ratios": {kind: ratio.to_dict() for kind, ratio in ratios.items()},
    }


def _count_steps(take: Callable[[int], object]) -> int:
    """Return the number of steps of one measurement."""
    import time

    take(3)
    started = time.perf_counter()
    take(5)
    return max(3, int(SECONDS * 5 / (time.perf_counter() - started)))


def table(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the results as rows of a table."""
    rows = [["network", "rows", "step", "ms (quartiles)", "times plain (quartiles)", "target"]]
    for result in results:
        for kind, seconds in result["seconds"].items():
            ratio = Quartiles.from_dict(result["ratios"][kind])
            target = compare_to_target(ratio.median, result["target"]) if kind == "private" else ""
            milliseconds = Quartiles.from_dict(seconds).format(1e3)
            rows.append([result["network"], str(result["rows"]), kind, milliseconds, ratio.format(1, 2), target])
    return rows


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", default="64,256", help="rows of a step")
    parser.add_argument("--times", type=int, default=30, help="measurements of each kind")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [int(rows) for rows in options.rows.split(",")]
    results = [measure(name, rows, options.times) for name in NETWORKS for rows in sizes]
    print_result({"results": results, "machine": describe_machine()}, table(results), as_json=options.json)


if __name__ == "__main__":
    main()
