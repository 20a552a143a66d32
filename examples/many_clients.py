"""Ten thousand clients of twenty rows: one array for all of them, memory-mapped, and a few clients a round.

    python examples/many_clients.py

Think of phones: each has a few rows in two sets, and takes part now and then.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fedul

CLIENTS, ROWS, COLUMNS = 10_000, 20, 16


def main() -> None:
    """Train across the clients and print the error on new rows."""
    generator = np.random.default_rng(0)
    direction = generator.normal(size=COLUMNS) / 2
    shares = generator.choice([0.1, 0.5, 0.9], size=2 * CLIENTS)  # of the class "yes" in each set, two sets a client
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.npy")
        x = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(CLIENTS * ROWS, COLUMNS))
        set_of_row = np.repeat(np.arange(2 * CLIENTS), ROWS // 2)
        yes = generator.random(len(x)) < shares[set_of_row]
        x[:] = generator.normal(size=x.shape) + np.where(yes, 1, -1)[:, None] * direction
        x.flush()
        federation = fedul.Federation.from_arrays(
            np.load(file, mmap_mode="r"),
            set_of_row,
            np.stack([1 - shares, shares], axis=1),
            np.repeat([f"phone-{number:05}" for number in range(CLIENTS)], 2),
            ["no", "yes"],
            held_out=0.1,
        )
        run = fedul.train(federation, method="fedul", model="linear", participation=0.02, rounds=15, seed=0)
    truth = generator.random(2000) < 0.5
    new = generator.normal(size=(2000, COLUMNS)) + np.where(truth, 1, -1)[:, None] * direction
    wrong = run.classifier.predict(new.astype(np.float32)) != np.where(truth, "yes", "no")
    each = run.history[-1]
    print(f"{each.clients} of {CLIENTS:,} clients a round; error on new rows {wrong.mean():.1%}")


if __name__ == "__main__":
    main()
