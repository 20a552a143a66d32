"""fedul: classifiers learned across sites that have no labels, only class proportions."""

from __future__ import annotations

from fedul._utils.lazy import lazy_exports

__version__ = "0.2.0"

# Names are imported when they are used: `import fedul` and `fedul --help` do not wait for torch.
_HOMES = {
    "Algorithm": "algorithms.base",
    "AuditResult": "auditing.document",
    "BenchmarkDataConfig": "config",
    "Callback": "training.callbacks",
    "CheckResult": "evaluation.check_result",
    "Classifier": "classifier",
    "DoctorResult": "installation.result",
    "EarlyStopping": "training.stop_early",
    "Evaluation": "evaluation.document",
    "Federation": "core.federation",
    "FedulError": "errors",
    "InputError": "errors",
    "FileDataConfig": "config",
    "JsonLinesLogger": "tracking",
    "MLflowTracker": "tracking",
    "Method": "methods.base",
    "PruneCheckpoints": "training.prune_checkpoints",
    "Run": "training.result",
    "StopRun": "training.callbacks",
    "Study": "core.truth",
    "TensorBoardTracker": "tracking",
    "TrainConfig": "config",
    "Transition": "core.transition",
    "Truth": "core.truth",
    "UnlabeledSets": "core.unlabeled_sets",
    "adjust_sites": "data.adjust_sites",
    "audit": "auditing.audit",
    "check": "evaluation.check",
    "doctor": "installation.doctor",
    "evaluate": "evaluation.evaluate",
    "compare": "experiments.compare",
    "export": "exporting.export",
    "load": "data.load",
    "option": "_utils.settings",
    "report": "reporting.report",
    "train": "training.train",
    "watch": "reporting.live.watch",
}
# Those that need an extra are left out of `__all__`, so that `from fedul import *` works without it.
_HOMES_IN_EXTRAS = {"FedULClassifier": "sklearn"}
__all__ = [*_HOMES, "__version__"]

__getattr__, __dir__ = lazy_exports(__name__, {**_HOMES, **_HOMES_IN_EXTRAS})
