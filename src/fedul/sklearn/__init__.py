"""FedUL as a scikit-learn estimator, and a score for model selection that needs no labels.

Needs the extra `sklearn`: pip install fedul[sklearn].
"""

from __future__ import annotations

try:  # the library, not this package: imports are absolute
    from sklearn.utils.validation import validate_data as _since_1_6  # noqa: F401
except ImportError as problem:
    raise ImportError(
        f"FedULClassifier needs scikit-learn 1.6 or later ({problem}); install it with: pip install fedul[sklearn]."
    ) from None

from fedul.sklearn.estimator import FedULClassifier
from fedul.sklearn.scoring import set_likelihood_score

__all__ = ["FedULClassifier", "set_likelihood_score"]
