"""fedul: classifiers learned across sites that have no labels, only class proportions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedul.classifier import Classifier as Classifier
    from fedul.config import DataConfig as DataConfig
    from fedul.config import OwnDataConfig as OwnDataConfig
    from fedul.config import TrainConfig as TrainConfig
    from fedul.data.study import load as load
    from fedul.errors import FedulError as FedulError
    from fedul.errors import InputError as InputError
    from fedul.federation import Federation as Federation
    from fedul.federation import UnlabeledSets as UnlabeledSets
    from fedul.sklearn import FedULClassifier as FedULClassifier
    from fedul.training import Run as Run
    from fedul.training import train as train
    from fedul.transition import Transition as Transition
    from fedul.truth import Study as Study
    from fedul.truth import Truth as Truth

# Names are imported when they are used: `import fedul` and `fedul --help` do not wait for torch.
_HOMES = {
    "Classifier": "classifier",
    "DataConfig": "config",
    "Federation": "federation",
    "FedulError": "errors",
    "InputError": "errors",
    "OwnDataConfig": "config",
    "Run": "training",
    "Study": "truth",
    "TrainConfig": "config",
    "Transition": "transition",
    "Truth": "truth",
    "UnlabeledSets": "federation",
    "load": "data.study",
    "train": "training",
}
# Those that need an extra are left out of `__all__`, so that `from fedul import *` works without it.
_HOMES_IN_EXTRAS = {"FedULClassifier": "sklearn"}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or _HOMES_IN_EXTRAS.get(name)
    if home:
        return getattr(import_module(f"fedul.{home}"), name)
    raise AttributeError(f"module 'fedul' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_HOMES_IN_EXTRAS])
