"""Where arithmetic happens: a GPU if there is one, and as many threads as pay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

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
    """The federation with its inputs on the device, in a type that becomes the network's; what is shared stays so."""
    there: dict[int, torch.Tensor] = {}
    clients = []
    for client in federation.clients:
        inputs, key = client.inputs, id(client.inputs)
        if key not in there:
            there[key] = inputs.to(device, inputs.dtype if float_type(inputs) == precision else precision)
        clients.append(client if there[key] is inputs else replace(client, inputs=there[key]))
    return replace(federation, clients=clients)


def good_threads(module: nn.Module) -> int:
    """One thread for small dense networks, where threads wait more than they work; else as many as there are cores."""
    small = sum(p.numel() for p in module.parameters()) < 500_000
    convolves = any(isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) for layer in module.modules())
    return (
        1
        if small and not convolves
        else len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


@contextmanager
def arithmetic_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
