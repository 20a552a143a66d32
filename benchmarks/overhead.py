"""What fedul costs beyond the arithmetic: its engine against a training loop written by hand. Takes 90 seconds.

    python benchmarks/overhead.py [--json] [--data-dir FOLDER]

A round is: every client starts from the global weights, makes one pass over its rows with a new Adam, and the weights
are averaged. `ByHand` is what a careful engineer writes for this one task in plain torch. Both take the same rows in
the same order from the same weights, in turn, and must come to the same weights. Beside it stands the cost of the
transition layer: the set-likelihood loss, forward and backward, against one training step of the paper's network.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from _measure import Spread, in_turn, machine, options, show, verdict
from fedul import data, models
from fedul.algorithms.base import Weights
from fedul.algorithms.fedavg import FedAvg
from fedul.config import DataConfig, TrainConfig
from fedul.data.partition import deal
from fedul.data.source import LabelledData
from fedul.engines.inprocess import InProcess
from fedul.engines.local import Broadcast
from fedul.federation import Federation, Scaling
from fedul.hardware import arithmetic_threads, good_threads
from fedul.methods.fedul import TEMPERATURES, FedUL
from fedul.models.weights import weights_of
from fedul.randomness import key_seed
from fedul.transition import Transition, set_loss

TARGETS = {"small-cnn": 1.05, "mlp": 1.10}
TRANSITION_TARGET = 0.02
CLIENTS, SETS, SEED = 5, 10, 0
IMAGES = 6_000  # as many of MNIST as make a round of a second
WARM_UP = 3


class Engine:
    """A round as fedul computes it."""

    def __init__(self, federation: Federation, model: str, batch_size: int) -> None:
        self.config = TrainConfig(model=model, batch_size=batch_size, seed=SEED)
        self.module = models.build(model, federation.input_shape, len(federation.classes), SEED)
        self.algorithm = FedAvg()
        self.engine = InProcess(federation, FedUL(), self.algorithm, self.module, self.config)
        self.names = sorted(client.name for client in federation.clients)

    def round(self, weights: Weights, number: int) -> Weights:
        updates = self.engine.train(Broadcast(number, weights), self.names)
        return self.algorithm.aggregate(weights, {}, updates, len(self.names))[0]

    def held_out_loss(self, weights: Weights) -> float:
        found = self.engine.held_out(weights)
        return found.losses[TEMPERATURES.index(1.0)] / found.rows


class ByHand:
    """The same round in plain torch: rows scaled once, log tables looked up once, and nothing it can do without."""

    def __init__(self, federation: Federation, model: str, batch_size: int) -> None:
        self.config = TrainConfig(model=model, batch_size=batch_size, seed=SEED)
        self.module = models.build(model, federation.input_shape, len(federation.classes), SEED)
        self.clients = []
        for client in sorted(federation.clients, key=lambda c: c.name):
            x = client.inputs[client.train.index].float() * federation.scaling.scale
            priors, shares, test_prior = map(torch.as_tensor, (client.priors, client.set_priors, federation.test_prior))
            joint = (shares[:, None] * priors / test_prior).log().float()  # (M, K)
            marginal = (shares @ priors / test_prior).log().float()  # (K,)
            self.clients.append((client.name, x, joint[client.train.sets], marginal))

    def round(self, weights: Weights, number: int) -> Weights:
        model, batch_size, rate = self.module, self.config.batch_size, self.config.learning_rate
        model.train()
        named = dict(model.named_parameters())
        parameters = list(named.values())
        total = {name: torch.zeros_like(value) for name, value in weights.items()}
        for client, x, joint, marginal in self.clients:
            with torch.no_grad():
                for name, parameter in named.items():
                    parameter.copy_(weights[name])
            adam = torch.optim.Adam(parameters, lr=rate, fused=True)
            generator = torch.Generator().manual_seed(key_seed(SEED, number, client))
            order = torch.randperm(len(x), generator=generator)
            steps = zip(torch.split(x[order], batch_size), torch.split(joint[order], batch_size), strict=True)
            for inputs, of_sets in steps:
                logits = model(inputs)
                loss = ((logits + marginal).logsumexp(1) - (logits + of_sets).logsumexp(1)).mean()
                adam.zero_grad()
                loss.backward()
                adam.step()
            with torch.no_grad():
                for name, parameter in named.items():
                    total[name] += parameter
        return {name: value / len(self.clients) for name, value in total.items()}


@dataclass(frozen=True)
class Overhead:
    """One model's rounds, both ways."""

    data: str
    batch_size: int
    rows: int
    steps: int
    threads: int
    pairs: int
    ratio: Spread  # of the two rounds of each pair
    engine: Spread  # seconds a round
    by_hand: Spread
    held_out: Spread  # seconds of the held-out loss, which fedul.train adds to a round
    held_out_loss: dict[str, float]  # after the warm-up
    weight_difference: float  # the largest after one round

    def plain(self) -> dict[str, Any]:
        return {k: v.plain() if isinstance(v, Spread) else v for k, v in vars(self).items()}


def overhead(model: str, source: str, federation: Federation, batch_size: int, pairs: int) -> Overhead:
    engine, by_hand = Engine(federation, model, batch_size), ByHand(federation, model, batch_size)
    threads = good_threads(engine.module)
    start = {name: tensor.clone() for name, tensor in weights_of(engine.module).items()}
    sizes = [len(client.train) for client in federation.clients]
    if any(size % batch_size == 1 for size in sizes):
        raise SystemExit(f"{model}: a last step of one row would join the one before it in fedul only")
    with arithmetic_threads(threads):
        ours, theirs = engine.round(start, 1), by_hand.round(start, 1)
        apart = max(float((ours[name] - theirs[name]).abs().max()) for name in start)
        for number in range(2, WARM_UP + 1):
            ours, theirs = engine.round(ours, number), by_hand.round(theirs, number)
        number = WARM_UP + 1
        actions: dict[str, Callable[[], object]] = {
            "engine": lambda: engine.round(ours, number),
            "by_hand": lambda: by_hand.round(ours, number),
            "held_out": lambda: engine.held_out_loss(ours),
        }
        taken = in_turn(actions, pairs)
    return Overhead(
        data=source,
        batch_size=batch_size,
        rows=sum(sizes),
        steps=sum(-(-size // batch_size) for size in sizes),
        threads=threads,
        pairs=pairs,
        ratio=Spread.of([a / b for a, b in zip(taken["engine"], taken["by_hand"], strict=True)]),
        **{name: Spread.of(times) for name, times in taken.items()},
        held_out_loss={"engine": engine.held_out_loss(ours), "by_hand": engine.held_out_loss(theirs)},
        weight_difference=apart,
    )


def transition_cost(steps: int = 8) -> dict[str, Any]:
    """The set-likelihood loss alone against one training step of the paper's network, at batch 128 and 10 classes."""
    generator = torch.Generator().manual_seed(SEED)
    images = torch.rand(128, 1, 28, 28, generator=generator)
    sets = torch.randint(0, SETS, (128,), generator=generator)
    uniform = torch.full((SETS,), 1 / SETS)
    priors = torch.rand(SETS, 10, generator=generator)
    table = Transition(priors / priors.sum(1, keepdim=True), uniform, uniform)
    module = models.build("paper-cnn", (1, 28, 28), 10, SEED).train()
    adam = torch.optim.Adam(module.parameters(), fused=True)
    logits = torch.randn(128, 10, generator=generator, requires_grad=True)
    calls = 100

    def loss(values: Tensor) -> None:
        set_loss(values, table.joint[sets], table.marginal).mean().backward()  # type: ignore[no-untyped-call]

    def step() -> None:
        adam.zero_grad()
        loss(module(images))
        adam.step()

    def loss_alone() -> None:
        for _ in range(calls):
            logits.grad = None
            loss(logits)

    with arithmetic_threads(good_threads(module)):
        in_turn({"step": step, "loss": loss_alone}, 2)
        taken = in_turn({"step": step, "loss": loss_alone}, steps)
    alone, whole = Spread.of([t / calls for t in taken["loss"]]), Spread.of(taken["step"])
    return {"ratio": alone.median / whole.median, "loss_seconds": alone.plain(), "step_seconds": whole.plain()}


def digits() -> tuple[str, Federation]:
    return "digits", deal(data.read("digits"), DataConfig(clients=CLIENTS, sets=(SETS,))).federation


def images(data_dir: str | None) -> tuple[str, Federation]:
    """MNIST where it is found, else noise of its shape: the arithmetic is the same."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = data_dir or os.environ.get("FEDUL_DATA") or str(beside)
    if data.found("mnist", folder):
        source, whole = "MNIST", data.read("mnist", folder)
    else:
        source, whole = "synthetic images", synthetic()
    few = replace(whole, train_inputs=whole.train_inputs[:IMAGES], train_labels=whole.train_labels[:IMAGES])
    return source, deal(few, DataConfig(clients=CLIENTS, sets=(SETS,))).federation


def synthetic() -> LabelledData:
    generator = np.random.default_rng(SEED)
    pixels = torch.from_numpy(generator.integers(0, 256, (IMAGES, 1, 28, 28), dtype=np.uint8))
    labels = np.arange(IMAGES) % 10
    return LabelledData(pixels, labels, pixels[:100], labels[:100], "0123456789", Scaling(1 / 255))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data-dir", help="folder with MNIST (default: FEDUL_DATA, then ../shared/data)")
    parser.add_argument("--mlp-pairs", type=int, default=100, help="timed pairs of rounds of the mlp (default: 100)")
    parser.add_argument("--cnn-pairs", type=int, default=30, help="timed pairs of rounds of small-cnn (default: 30)")
    arguments = parser.parse_args()

    found = {
        "mlp": overhead("mlp", *digits(), batch_size=32, pairs=arguments.mlp_pairs),
        "small-cnn": overhead("small-cnn", *images(arguments.data_dir), batch_size=128, pairs=arguments.cnn_pairs),
    }
    transition = transition_cost()
    result = {
        "ratio": {name: one.ratio.median for name, one in found.items()},
        "transition_ratio": transition["ratio"],
        "targets": {"ratio": TARGETS, "transition_ratio": TRANSITION_TARGET},
        "rounds": {name: one.plain() for name, one in found.items()},
        "transition": transition,
        "machine": machine(),
    }
    table = [["what", "ratio (quartiles)", "engine, ms", "by hand, ms", "target"]]
    for name, one in found.items():
        milliseconds = [spread.text(scale=1e3, digits=1) for spread in (one.engine, one.by_hand)]
        what = f"{name}, {one.data}: a round of {one.steps} steps"
        table.append([what, one.ratio.text(), *milliseconds, verdict(one.ratio.median, TARGETS[name])])
    ratio, alone, whole = (transition["ratio"], transition["loss_seconds"], transition["step_seconds"])
    times = [f"{alone['median'] * 1e3:.3f} (the loss)", f"{whole['median'] * 1e3:.0f} (a step of paper-cnn)"]
    table.append(["set-likelihood loss", f"{ratio:.5f}", *times, verdict(ratio, TRANSITION_TARGET)])
    show(result, table, as_json=arguments.json)
    if not arguments.json:
        for name, one in found.items():
            a, b, apart = one.held_out_loss["engine"], one.held_out_loss["by_hand"], one.weight_difference
            print(f"{name}: weights differ by at most {apart:.1g} after one round; ", end="")
            print(f"held-out loss after {WARM_UP}: {a:.6f} by the engine, {b:.6f} by hand")
            if one.ratio.wide:
                print(f"{name}: the quartiles are far apart, so the machine was busy; measure again when it is not")


if __name__ == "__main__":
    main()
