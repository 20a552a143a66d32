"""Random generators keyed by their purpose, e.g. (seed, round, client name).

All random numbers of fedul come from them. So the order of clients, a stop and resume, and the engine do not change a
result.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

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
