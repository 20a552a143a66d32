"""How the clients of a round are spread over this machine: one after another or stacked, on one thread or on several.

Rules and not a measurement decide, so that a run that is taken up again computes as it did before. Their figures are
from `docs/results/speed.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from fedul.config import TrainConfig
from fedul.engines.layers import on_trial, stacked_forward
from fedul.federation import Federation
from fedul.hardware import cores
from fedul.methods.base import Method

SMALL = 200_000
"""Parameters of a dense network up to which clients train quicker stacked: beyond, its kernels are long enough."""
LARGE = 5_000_000
"""Parameters from which on all threads work on one client: two of them side by side would wait for memory."""
STACKED = 2_000_000
"""Parameters that are stacked at most: more fall out of the cache."""
TOGETHER = 256
"""Clients that are stacked at most."""
BUSY = 200_000
"""Stacked parameters that keep a thread busy: threads with smaller stacks wait for each other's Python."""


@dataclass(frozen=True, eq=False)
class Layout:
    """How the clients of a round are spread over this machine."""

    stacked: bool = False  # whether clients are stacked, or train one after another
    together: int = 1  # clients of a stack, at most
    workers: int = 1
    threads: int = 1  # of each of several workers
    remarks: Sequence[str] = field(default_factory=list)

    def groups(self, clients: Sequence[str]) -> list[Sequence[str]]:
        """The clients in groups that are one piece of work each, in their order and as even as can be."""
        count = -(-len(clients) // self.together)
        if self.stacked and self.workers > 1:
            # As many for every worker.
            count = min(-(-count // self.workers) * self.workers, len(clients))
        size = -(-len(clients) // count)
        return [clients[i : i + size] for i in range(0, len(clients), size)]


def layout_of(federation: Federation, method: Method, module: nn.Module, config: TrainConfig) -> Layout:
    """What is quickest, within what the user asks for."""
    clients = config.participants(len(federation.clients))
    size = sum(p.numel() for p in module.parameters())
    stacked = _stacks(federation, method, module, config, size, clients)
    remarks = []
    if config.engine_mode == "stacked" and not stacked:
        remarks.append("engine-mode stacked: this method or model trains one client at a time, so that this is loop.")
    workers = min(config.workers, clients) or _good_workers(module, size, clients, config.threads or cores(), stacked)
    if workers > 1 and not may_be_copied(module, federation.input_shape):
        if config.workers:
            remarks.append("workers: this model draws at random while it trains or has no copy, so that this is 1.")
        workers = 1
    together = max(1, min(TOGETHER, STACKED // size)) if stacked else 1
    return Layout(stacked, together, workers, max(1, (config.threads or cores()) // workers), remarks)


def _stacks(
    federation: Federation, method: Method, module: nn.Module, config: TrainConfig, size: int, clients: int
) -> bool:
    """Whether clients are stacked: that is wanted, and can be had."""
    if config.engine_mode == "loop" or not method.at_once:
        return False
    # Convolutions of several clients at once are slower than one after another: their kernels are made for one weight.
    quicker = size <= SMALL and clients > 1 and not _convolves(module)
    if config.engine_mode == "auto" and not quicker:
        return False
    return stacked_forward(module, federation.input_shape) is not None


def _good_workers(module: nn.Module, size: int, clients: int, threads: int, stacked: bool) -> int:
    if next(module.parameters()).device.type != "cpu":
        return 1
    if stacked:
        return max(1, min(threads, clients * size // BUSY))
    # Dense layers of a small network are over so soon that threads would wait for each other's Python.
    return min(threads, clients) if _convolves(module) and size < LARGE else 1


def _convolves(module: nn.Module) -> bool:
    return any(isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) for layer in module.modules())


def may_be_copied(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether copies of the network can train side by side, with the result that one would have.

    Not so if it takes numbers from torch's own generator while it trains, as dropout does: there is only one.
    """
    trial, first = on_trial(module), next(module.parameters())
    if trial is None:
        return False
    before = torch.random.get_rng_state()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        trial(torch.zeros(2, *shape, dtype=first.dtype, device=first.device))
        return torch.equal(torch.random.get_rng_state(), before)


def put_channels_last(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Lays out the weights of convolutions with channels last in memory, which is a quarter quicker on a CPU.

    A network that takes its intermediate results for contiguous (by `view`) cannot have them so, and stays as it is.
    """
    first = next(module.parameters())
    if first.device.type != "cpu" or not any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        return
    trial = on_trial(module)
    if trial is None:
        return
    try:
        with torch.random.fork_rng(devices=[]):
            trial.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            trial(torch.zeros(2, *shape, dtype=first.dtype)).sum().backward()
    except RuntimeError:
        return
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
