"""fedul: classifiers learned across sites that have no labels, only class proportions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedul.classifier import Classifier as Classifier
    from fedul.config import DataConfig as DataConfig
    from fedul.config import TrainConfig as TrainConfig
    from fedul.data.study import load as load
    from fedul.errors import FedulError as FedulError
    from fedul.errors import InputError as InputError
    from fedul.federation import Federation as Federation
    from fedul.federation import UnlabeledSets as UnlabeledSets
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
    "Run": "training",
    "Study": "truth",
    "TrainConfig": "config",
    "Transition": "transition",
    "Truth": "truth",
    "UnlabeledSets": "federation",
    "load": "data.study",
    "train": "training",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"fedul.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedul' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
