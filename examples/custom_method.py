"""A method of your own: FedUL with a penalty on predicted shares that are far from the stated ones.

    python examples/custom_method.py

It is compared with FedUL on handwritten digits, whose labels are used only to measure the error.
"""

from __future__ import annotations

from dataclasses import dataclass

import fedul
from fedul.methods.fedul import FedUL


@dataclass(frozen=True)
class ConfidentFedUL(FedUL):
    """FedUL with a penalty on the entropy of predictions: classes are far apart, so predictions should be sure."""

    strength: float = fedul.option(0.05, "Weight of the penalty.", low=0)

    def loss(self, predict, step):
        """Return the mean of -log Q and the penalty over the rows of a step."""
        logits = predict(step.inputs)  # (..., n, K)
        entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        return super().loss(lambda _: logits, step) + self.strength * step.mean(entropy)


def main() -> None:
    """Print the test error of both methods."""
    study = fedul.load("digits", clients=5, sets=10, rows=2000, seed=0)
    for name, method in (("fedul", "fedul"), ("with the penalty", ConfidentFedUL(strength=0.1))):
        run = fedul.train(study, method=method, model="mlp", rounds=20, seed=0)
        print(f"{name}: test error {run.result.test_error:.1%}, {run.labels_used} labels used")


if __name__ == "__main__":
    main()
