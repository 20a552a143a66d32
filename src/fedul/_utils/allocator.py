"""The C library's memory allocator, set up for large weights and vectorized clients.

By default glibc returns every freed block above 32 MiB to the system. Each step of a network with a layer of more than
eight million weights then takes new pages for its gradient and its casts, which takes longer than casting. It also
returns the end of the heap, which every step of vectorized clients then takes anew.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from functools import cache

LARGE_BLOCK = 2**25
"""Bytes up to which glibc keeps freed memory by itself (DEFAULT_MMAP_THRESHOLD_MAX)."""
TRIMMED_BLOCK = 2**17
"""Bytes at the end of the heap from which on glibc returns them to the system (DEFAULT_TRIM_THRESHOLD)."""
KEPT_BYTES = 2**30
"""Freed memory at the end of the heap that is kept, at most."""
MAPPED_BYTES = 2**28
"""Size of blocks from which on they are returned to the system as before, such as whole data sets."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # names of malloc.h


def is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether the user has configured the allocator, or chosen another one.

    >>> is_configured({"MALLOC_ARENA_MAX": "2"}), is_configured({"LD_PRELOAD": "libjemalloc.so"}), is_configured({})
    (True, True, False)
    """
    return any(environment.get(name) for name in environment if name.startswith("MALLOC_")) or any(
        environment.get(name) for name in ("GLIBC_TUNABLES", "LD_PRELOAD")
    )


@cache
def keep_freed_memory() -> bool:
    """Let the process keep freed blocks for the next ones; return whether the allocator could be set up so.

    It holds for the whole process and until its end. Threads that start later share one heap, because a heap of their
    own holds at most 64 MiB. Nothing changes without glibc, or where the user has configured the allocator.
    """
    if platform.libc_ver()[0] != "glibc" or is_configured(os.environ):
        return False
    try:
        configure = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_MMAP_THRESHOLD, MAPPED_BYTES), (_TRIM_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all(configure(name, value) for name, value in settings)
