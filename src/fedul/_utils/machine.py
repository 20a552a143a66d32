"""Processor, cores and memory of this machine, without torch."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

PROCESSOR_FILE = Path("/proc/cpuinfo")
MEMORY_FILE = Path("/proc/meminfo")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """Return the name of the processor, or its architecture where the system does not tell the name."""
    return _first_value(PROCESSOR_FILE, "model name") or platform.processor() or platform.machine()


def processor_features() -> frozenset[str]:
    """Return the instruction sets of the processor, as Linux names them; none on other systems."""
    return frozenset((_first_value(PROCESSOR_FILE, "flags") or _first_value(PROCESSOR_FILE, "Features")).split())


def memory_bytes() -> int | None:
    """Return the memory of this machine; None where the system does not tell it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def free_memory_bytes() -> int | None:
    """Return the memory that new processes can use without swapping; None where the system does not tell it."""
    with contextlib.suppress(ValueError, IndexError):
        return 1024 * int(_first_value(MEMORY_FILE, "MemAvailable").split()[0])
    return None


def _first_value(file: Path, name: str) -> str:
    """Return the value of the first line "name: value" of a file; empty if there is none."""
    with contextlib.suppress(OSError):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
    return ""
