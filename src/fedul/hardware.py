"""Where arithmetic happens: a GPU if there is one, and as many threads as pay."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from fedul.errors import InputError
from fedul.federation import Federation, float_type


def device_named(name: str) -> torch.device:
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
        torch.ones(1, device=device).item()  # a device that only pretends to compute fails here
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"device: '{name}' is not there; use auto or cpu.") from None
    return device


def placed(federation: Federation, device: torch.device, precision: torch.dtype) -> Federation:
    """The federation with its inputs on the device, in a type that becomes the network's; what is shared stays so.

    Where all of them are so already it is the federation itself: a mapped file stays a mapped file.
    """
    there: dict[int, torch.Tensor] = {}
    for client in federation.clients:
        inputs = client.inputs
        if id(inputs) not in there:
            there[id(inputs)] = inputs.to(device, inputs.dtype if float_type(inputs) == precision else precision)
    if all(there[id(client.inputs)] is client.inputs for client in federation.clients):
        return federation
    return replace(federation, clients=[replace(c, inputs=there[id(c.inputs)]) for c in federation.clients])


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def described() -> str:
    """This machine, in a few words: processor, cores, memory, and with what it computes."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    memory = ""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB"
    graphics = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    return f"{name}, {cores()} core{'s' if cores() > 1 else ''}{memory}{graphics}; torch {torch.__version__}"


def good_threads(module: nn.Module) -> int:
    """One thread for small networks, where threads wait more than they work; else as many as there are cores."""
    return 1 if sum(p.numel() for p in module.parameters()) < 500_000 else cores()


@contextmanager
def arithmetic_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
