"""Peak memory of training with 1,000 clients against 10 clients that hold the same rows. Takes about 15 seconds.

    python benchmarks/memory.py [--json]

Each federation is built and trained for two rounds in a process of its own, whose peak resident memory is read at the
end. Beside the peak stands what the process held before training (Python, torch, the rows), so that the ratio can be
judged without that ballast.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from typing import Any

from _measure import machine, options, show, verdict

FEW, MANY = 10, 1_000
ROWS = 60_000  # of 28 x 28 bytes: the size of MNIST
SETS, CLASSES = 10, 10
ROUNDS = 2
TARGET = 1.2


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)  # measure this process, not two new ones
    arguments = parser.parse_args()
    if arguments.clients:
        print(json.dumps(trained(arguments.clients)))
        return

    few, many = measured(FEW), measured(MANY)
    ratio = many["peak_mb"] / few["peak_mb"]
    result = {
        "ratio": ratio,
        "clients": {str(FEW): few, str(MANY): many},
        "kb_a_client": (many["peak_mb"] - few["peak_mb"]) * 1e3 / (MANY - FEW),
        "rows": ROWS,
        "rounds": ROUNDS,
        "model": "mlp",
        "model_kb": few["model_kb"],
        "target": TARGET,
        "machine": machine(),
    }
    table = [["clients", "peak", "before training", "seconds", "target"]]
    for count, one in ((FEW, few), (MANY, many)):
        memory = [f"{one['peak_mb']:.0f} MB", f"{one['before_training_mb']:.0f} MB"]
        table.append([f"{count:,}", *memory, f"{one['seconds']:.1f}", ""])
    table.append(["ratio", f"{ratio:.3f}", "", "", verdict(ratio, TARGET)])
    show(result, table, as_json=arguments.json)


def measured(clients: int) -> dict[str, Any]:
    """The figures of a new process that trains with this many clients."""
    command = [sys.executable, __file__, "--clients", str(clients)]
    figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def trained(clients: int) -> dict[str, float]:
    """Trains in this process, and says how much memory that took."""
    import time
    import warnings

    import torch

    import fedul
    from fedul import priors
    from fedul.models.weights import weights_of
    from fedul.randomness import numpy_generator, torch_generator

    warnings.simplefilter("ignore")
    # Only the size matters here: the rows are noise, and nothing is learned.
    images = torch.randint(0, 256, (ROWS, 1, 28, 28), dtype=torch.uint8, generator=torch_generator("memory"))
    each = ROWS // clients
    members = []
    for c in range(clients):
        told = priors.sample("boosted", SETS, CLASSES, numpy_generator("memory", c))
        sets = torch.arange(each) % SETS
        members.append(fedul.UnlabeledSets.from_arrays(f"client-{c}", images[c * each : (c + 1) * each], sets, told))
    federation = fedul.Federation(members, "0123456789", scaling=fedul.federation.Scaling(1 / 255))
    before = peak_mb()
    started = time.perf_counter()
    run = fedul.train(federation, model="mlp", rounds=ROUNDS)
    taken = time.perf_counter() - started
    tensors = weights_of(run.classifier.module).values()
    return {
        "peak_mb": peak_mb(),
        "before_training_mb": before,
        "seconds": taken,
        "model_kb": sum(t.numel() * t.element_size() for t in tensors) / 1e3,
    }


def peak_mb() -> float:
    """The most resident memory this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    main()
