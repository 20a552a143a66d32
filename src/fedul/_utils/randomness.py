"""Random generators keyed by their purpose, e.g. (seed, round, client name).

All random numbers of fedul come from them. So the order of clients, a stop and resume, and the engine do not change a
result. Layers such as dropout draw from the default generators of torch instead, one for each device, which are seeded
with a key before a client trains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch


def key_seed(*key: int | str) -> int:
    """Return a 63-bit seed for a key; different keys give unrelated seeds.

    >>> key_seed(0, 1, "north") == key_seed(0, 1, "north"), key_seed(0, 1, "north") == key_seed(0, 11, "north")
    (True, False)
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def torch_generator(*key: int | str) -> torch.Generator:
    """Return a CPU generator of torch for this key."""
    import torch

    return torch.Generator().manual_seed(key_seed(*key))


def numpy_generator(*key: int | str) -> np.random.Generator:
    """Return a generator of NumPy for this key."""
    import numpy as np

    return np.random.default_rng(key_seed(*key))


def seed_layers(device: torch.device, seed: int) -> None:
    """Seed the generators that the layers of a network on this device draw from."""
    import torch

    # Not torch.manual_seed, which would also reseed the generators of every GPU.
    torch.default_generator.manual_seed(seed)
    if (module := _device_module(device)) is not None:
        with module.device(device):
            module.manual_seed(seed)


def layer_random_states(device: torch.device) -> list[torch.Tensor]:
    """Return the states of the generators that the layers of a network on this device draw from."""
    import torch

    module = _device_module(device)
    return [torch.random.get_rng_state(), *([] if module is None else [module.get_rng_state(device)])]


@contextmanager
def keep_layer_random_states(device: torch.device) -> Iterator[None]:
    """Context after which the generators that layers draw from have the states from before."""
    import torch

    before = layer_random_states(device)
    try:
        yield
    finally:
        torch.random.set_rng_state(before[0])
        for state in before[1:]:
            _device_module(device).set_rng_state(state, device)


def _device_module(device: torch.device) -> Any:
    """Return the module of torch with the generators of a device; None if there is none, as for the CPU."""
    import torch

    module = getattr(torch, device.type, None)
    return module if hasattr(module, "get_rng_state") and hasattr(module, "device") else None
