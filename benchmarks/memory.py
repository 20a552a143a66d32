"""Peak memory of training with 1,000 clients compared with 10 clients that hold the same rows. About 15 seconds.

    python benchmarks/memory.py [--json]

Each federation is built and trained for two rounds in a separate process, whose peak resident memory is read at the
end. The memory before training (Python, torch, the rows) is reported too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from typing import Any

from _measure import compare_to_target, describe_machine, make_parser, print_result

FEW, MANY = 10, 1_000
ROWS = 60_000  # of 28 x 28 bytes, as in MNIST
SETS, CLASSES = 10, 10
ROUNDS = 2
TARGET = 1.2


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)  # measure this process instead of new ones
    arguments = parser.parse_args()
    if arguments.clients:
        print(json.dumps(train_federation(arguments.clients)))
        return

    few, many = measure(FEW), measure(MANY)
    ratio = many["peak_mb"] / few["peak_mb"]
    result = {
        "ratio": ratio,
        "clients": {str(FEW): few, str(MANY): many},
        "kb_per_client": (many["peak_mb"] - few["peak_mb"]) * 1e3 / (MANY - FEW),
        "rows": ROWS,
        "rounds": ROUNDS,
        "model": "mlp",
        "model_kb": few["model_kb"],
        "target": TARGET,
        "machine": describe_machine(),
    }
    table = [["clients", "peak", "before training", "seconds", "target"]]
    for count, one in ((FEW, few), (MANY, many)):
        memory = [f"{one['peak_mb']:.0f} MB", f"{one['before_training_mb']:.0f} MB"]
        table.append([f"{count:,}", *memory, f"{one['seconds']:.1f}", ""])
    table.append(["ratio", f"{ratio:.3f}", "", "", compare_to_target(ratio, TARGET)])
    print_result(result, table, as_json=arguments.json)


def measure(clients: int) -> dict[str, Any]:
    """Train with this many clients in a new process and return its measurements."""
    command = [sys.executable, __file__, "--clients", str(clients)]
    figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def train_federation(clients: int) -> dict[str, float]:
    """Train in this process and return memory and seconds."""
    import time
    import warnings

    import torch

    import fedul
    from fedul._utils.randomness import numpy_generator, torch_generator
    from fedul.core import Scaling, priors
    from fedul.models.weights import weights_of

    warnings.simplefilter("ignore")
    # Only the size matters: the rows are noise.
    images = torch.randint(0, 256, (ROWS, 1, 28, 28), dtype=torch.uint8, generator=torch_generator("memory"))
    each = ROWS // clients
    sets = []
    for c in range(clients):
        class_priors = priors.sample_priors("boosted", SETS, CLASSES, numpy_generator("memory", c))
        rows = images[c * each : (c + 1) * each]
        sets.append(fedul.UnlabeledSets.from_arrays(f"client-{c}", rows, torch.arange(each) % SETS, class_priors))
    federation = fedul.Federation(sets, "0123456789", scaling=Scaling(1 / 255))
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
    """Return the peak resident memory of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    main()
