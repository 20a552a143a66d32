"""Devices, cores and threads of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from fedul._utils.machine import available_cores as available_cores
from fedul._utils.machine import memory_bytes, processor_name
from fedul.errors import InputError


def resolve_device(name: str) -> torch.device:
    """Return a device by name; "auto" is a GPU if there is one. InputError if it does not work."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
        torch.ones(1, device=device).item()  # fails here if the device cannot compute
    except Exception:  # torch has another error for each kind of device
        raise InputError(f"device: '{name}' is not available; use auto or cpu.") from None
    return device


def device_or_auto(name: str) -> str:
    """Return the name of a device, or "auto" if it is only on the machine where a run was trained."""
    try:
        resolve_device(name)
    except InputError:
        return "auto"
    return name


def describe_machine() -> str:
    """Return a description of this machine: processor, cores, memory, GPU and torch version."""
    total = memory_bytes()
    memory = "" if total is None else f", {total / 2**30:.0f} GB"
    graphics = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    count = available_cores()
    return f"{processor_name()}, {count} core{'s' if count > 1 else ''}{memory}{graphics}; torch {torch.__version__}"


def default_threads(module: nn.Module) -> int:
    """Return one thread for small networks, where more would mostly wait, and all cores otherwise."""
    return 1 if sum(p.numel() for p in module.parameters()) < 500_000 else available_cores()


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Context in which torch uses this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
