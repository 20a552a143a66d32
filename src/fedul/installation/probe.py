"""A trial of PyTorch, NumPy and installed methods in a process of its own, which may crash or hang without harm.

Run as a script, this file is that process: it prints one JSON document.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fedul._utils.documents import Document

SECONDS = 120
"""Time after which the trial is ended; a slow network drive may need half a minute."""


@dataclass(frozen=True)
class Trial(Document):
    """What the process found: the graphics processors, the hardware's 16 bits, and components that cannot be loaded."""

    gpus: tuple[str, ...]
    bfloat16: bool
    broken_components: tuple[str, ...]


def run_trial(seconds: float = SECONDS) -> Trial | str:
    """Return what a new process finds, or why it failed, as the end of a sentence."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    try:
        ended = subprocess.run(
            [sys.executable, "-P", str(Path(__file__))],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not load within {seconds:g} seconds"
    except OSError as problem:
        return f"{sys.executable} cannot be started: {problem.strerror or problem}"
    if ended.returncode < 0:
        return f"the process ended with signal {-ended.returncode}"
    if ended.returncode:
        return (ended.stderr.strip().splitlines() or ["no reason given"])[-1].rstrip(".")
    try:
        return Trial.from_dict(json.loads(ended.stdout.splitlines()[-1]))
    except (IndexError, ValueError) as problem:
        return f"its answer cannot be read ({problem})"


def main() -> None:
    """Load PyTorch and NumPy, compute with both, load components of other packages, and print what was found."""
    import numpy as np
    import torch

    matrix = torch.from_numpy(np.ones((4, 4), dtype=np.float32))
    assert float((matrix @ matrix).sum().item()) == 64.0
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]

    from fedul._utils.torch_private import processor_has_bfloat16

    trial = Trial(tuple(names), processor_has_bfloat16(), tuple(_broken_components()))
    print(json.dumps(trial.to_dict()))


def _broken_components() -> list[str]:
    """Return a sentence for every method and algorithm of another package that cannot be loaded."""
    from fedul.algorithms import ALGORITHMS
    from fedul.errors import InputError
    from fedul.methods import METHODS

    sentences = []
    for registry in (METHODS, ALGORITHMS):
        for name in registry:
            try:
                if not registry.is_builtin(name):
                    registry.load(name)
            except InputError as problem:
                sentences.append(str(problem))
    return sentences


if __name__ == "__main__":
    main()
