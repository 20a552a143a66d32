"""Freed memory is kept where that was decided, and the user's own settings take precedence."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch
from torch import nn

from fedul._utils.allocator import LARGE_BLOCK, is_configured
from fedul.engines.simulation.layout import keeps_freed_memory

FAULTS_OF_A_STEP = """
import resource, torch
from fedul._utils.allocator import keep_freed_memory
print(keep_freed_memory())
count = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
make = lambda: torch.zeros(12 * 2**20).add_(1)  # 48 MiB
faults = []
for _ in range(24):
    before = count()
    make()
    faults.append(count() - before)
print(min(faults))  # where a block ends up in the heap varies between steps and machines
"""


def page_faults(**variables: str) -> tuple[bool, int]:
    """Return whether a new process keeps freed memory, and the fewest page faults of a step with a large block."""
    inherited = {name: value for name, value in os.environ.items() if not is_configured({name: value})}
    command = [sys.executable, "-c", FAULTS_OF_A_STEP]
    ended = subprocess.run(command, env={**inherited, **variables}, text=True, capture_output=True, check=True)
    kept, faults = ended.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is set up")
def test_large_blocks_take_the_memory_of_freed_ones() -> None:
    kept, faults = page_faults()
    assert kept
    refused, faults_by_default = page_faults(MALLOC_TOP_PAD_="131072")  # the default, but set by the user
    assert not refused
    assert faults < 0.5 * faults_by_default


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD"])
def test_the_users_settings_take_precedence(name: str) -> None:
    assert is_configured({name: "1"})
    assert not is_configured({name: "", "PATH": "/bin"})


def test_only_networks_with_a_large_layer_on_a_cpu_need_it() -> None:
    weights = LARGE_BLOCK // 4
    assert not keeps_freed_memory(nn.Linear(weights, 1, device="meta"))
    assert not keeps_freed_memory(nn.Linear(1000, 1000))
    assert not keeps_freed_memory(nn.Linear(weights, 1, bias=False))
    assert keeps_freed_memory(nn.Linear(weights + 1, 1, bias=False))
    assert torch.float32.itemsize == 4
