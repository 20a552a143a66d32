"""How the clients of a round run on this machine: in a loop or vectorized, on one worker or on several.

The layout follows rules and no measurement, so that a resumed run computes the same as before. Only the number of
threads that share the operations of one batch is measured (`thread_choice.py`), because it does not change the result.
The constants are from the measurements in `docs/results/speed.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import nn

from fedul._utils.allocator import LARGE_BLOCK, TRIMMED_BLOCK
from fedul._utils.hardware import available_cores
from fedul._utils.randomness import keep_layer_random_states, layer_random_states
from fedul.config import TrainConfig
from fedul.core import Federation
from fedul.engines.simulation.thread_choice import ThreadChoice
from fedul.engines.simulation.vectorized_forward import trial_copy, vectorized_forward
from fedul.methods.base import Method

T = TypeVar("T")

MAX_VECTORIZED_MODEL = 200_000
"""Parameters of the largest dense network that is faster vectorized than in a loop."""
MAX_PARALLEL_MODEL = 5_000_000
"""Parameters of a network from which on all threads work on one client, because memory is the bottleneck."""
MAX_BATCH_PARAMETERS = 2_000_000
"""Parameters of all clients of a batch, at most; more do not fit into the cache."""
MAX_BATCH_CLIENTS = 256
"""Clients of a batch, at most."""
MIN_WORKER_PARAMETERS = 400_000
"""Parameters of all clients of a worker, at least; with fewer, threads wait for Python's interpreter lock."""
MIN_SHARED_WEIGHTS = 200_000
"""Parameters of all clients of a batch from which on several threads may be faster than one."""
SHARED_THREADS = (1, 2, 4, 8)
"""Numbers of threads to try for a batch of clients, see `thread_choice.py`."""


@dataclass(frozen=True, eq=False)
class Layout:
    """How the clients of a round run on this machine.

    Parameters
    ----------
    vectorized : bool
        Whether clients are vectorized or train in a loop.
    batch_clients : int
        Clients of a batch, at most; 1 in a loop.
    workers : int
        Number of workers, each on a thread.
    threads : int
        Threads of torch in each worker, if there are several.
    thread_options : sequence of int
        Numbers of threads of torch to try with a single worker; empty for those of the caller.
    warnings : sequence of str
        What the user asked for and cannot have.
    """

    vectorized: bool = False
    batch_clients: int = 1
    workers: int = 1
    threads: int = 1
    thread_options: Sequence[int] = ()
    warnings: Sequence[str] = field(default_factory=list)

    def thread_choice(self) -> ThreadChoice | None:
        """Return the choice between the numbers of threads; None if there is nothing to choose."""
        return ThreadChoice(self.thread_options) if self.thread_options else None

    def groups(self, clients: Sequence[T]) -> list[Sequence[T]]:
        """Split clients into groups of almost equal size that are trained as one job each, in their order."""
        count = -(-len(clients) // self.batch_clients)
        if self.vectorized and self.workers > 1:
            # The same number of groups for every worker.
            count = min(-(-count // self.workers) * self.workers, len(clients))
        size = -(-len(clients) // count)
        return [clients[i : i + size] for i in range(0, len(clients), size)]


def choose_layout(
    federation: Federation,
    method: Method,
    module: nn.Module,
    config: TrainConfig,
    precision: str = "float32",
    runs: int = 1,
) -> Layout:
    """Return the fastest layout that the configuration allows; vectorized clients compute in float32 only.

    With several runs, it is the layout for the clients of all of them together.
    """
    clients = runs * config.participants(len(federation.clients))
    size = sum(p.numel() for p in module.parameters())
    could_be = _can_vectorize(federation, method, module, config, size, clients)
    vectorized = precision == "float32" and could_be
    warnings = []
    if could_be and not vectorized and config.engine_mode == "auto":
        warnings.append(
            f"precision {precision}: clients of this small network train one after another in it; in float32 many "
            "train at once, which is several times faster."
        )
    if config.engine_mode == "vectorized" and not vectorized:
        cause = "private rows" if config.protects_rows else "this method or model"
        cause = cause if precision == "float32" else precision
        warnings.append(f"engine-mode vectorized: {cause} cannot be vectorized, so this is loop.")
    threads = config.threads or available_cores()
    workers = min(config.workers, clients) or _choose_workers(module, size, clients, threads, vectorized)
    if workers > 1 and not can_be_copied(module, federation.input_shape):
        if config.workers:
            warnings.append("workers: this model draws random numbers or cannot be copied, so this is 1.")
        workers = 1
    batch_clients = max(1, min(MAX_BATCH_CLIENTS, MAX_BATCH_PARAMETERS // size)) if vectorized else 1
    options: Sequence[int] = ()
    if vectorized and workers == 1 and not config.threads and min(clients, batch_clients) * size >= MIN_SHARED_WEIGHTS:
        options = [count for count in SHARED_THREADS if count <= threads]
    return Layout(vectorized, batch_clients, workers, max(1, threads // workers), options, warnings)


def _can_vectorize(
    federation: Federation, method: Method, module: nn.Module, config: TrainConfig, size: int, clients: int
) -> bool:
    """Return whether clients are vectorized: it is possible, and it is faster or asked for."""
    if config.engine_mode == "loop" or not method.vectorized or config.protects_rows:
        return False
    # Vectorized convolutions are slower than a loop, because their kernels are made for one weight.
    faster = size <= MAX_VECTORIZED_MODEL and clients > 1 and not _has_convolutions(module)
    if config.engine_mode == "auto" and not faster:
        return False
    return vectorized_forward(module, federation.input_shape) is not None


def _choose_workers(module: nn.Module, size: int, clients: int, threads: int, vectorized: bool) -> int:
    if next(module.parameters()).device.type != "cpu":
        return 1
    if vectorized:
        return max(1, min(threads, clients * size // MIN_WORKER_PARAMETERS))
    # Small dense layers take so little time that threads would wait for the interpreter lock.
    return min(threads, clients) if _has_convolutions(module) and size < MAX_PARALLEL_MODEL else 1


def _has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) for layer in module.modules())


def can_be_copied(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Return whether copies of the network can train in parallel with the same result as one.

    They cannot if the network uses the generator of its device in training, as dropout does.
    """
    trial, first = trial_copy(module), next(module.parameters())
    if trial is None:
        return False
    before = layer_random_states(first.device)
    with keep_layer_random_states(first.device), torch.no_grad():
        trial(torch.zeros(2, *shape, dtype=first.dtype, device=first.device))
        return all(map(torch.equal, layer_random_states(first.device), before))


def keeps_freed_memory(module: nn.Module, clients: int = 1) -> bool:
    """Return whether training is faster if freed memory is kept.

    It is on a CPU, with a layer above `LARGE_BLOCK` bytes, or with a layer of all clients of a batch above
    `TRIMMED_BLOCK` bytes: every step of vectorized clients takes and frees dozens of such blocks.
    """
    largest = max((p.nbytes for p in module.parameters() if p.device.type == "cpu"), default=0)
    return largest > LARGE_BLOCK or (clients > 1 and clients * largest > TRIMMED_BLOCK)


def use_channels_last(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Store the weights of convolutions with channels last, which is about 25 % faster on a CPU.

    A network that needs contiguous intermediate results (for `view`) is not changed.
    """
    first = next(module.parameters())
    if first.device.type != "cpu" or not any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        return
    trial = trial_copy(module)
    if trial is None:
        return
    try:
        with torch.random.fork_rng(devices=[]):
            trial.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            trial(torch.zeros(2, *shape, dtype=first.dtype)).sum().backward()
    except RuntimeError:
        return
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
