"""Training: the entry point, rounds, selection, run folder and callbacks."""

from __future__ import annotations

from fedul._utils.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Callback": "callbacks",
        "CallbackList": "callbacks",
        "CollectWarnings": "callbacks",
        "RunInfo": "callbacks",
        "StopRun": "callbacks",
        "Recipe": "recipe",
        "DataCounts": "result",
        "Run": "result",
        "RunResult": "result",
        "RunContext": "rounds",
        "RunBusy": "run_folder",
        "RunFolder": "run_folder",
        "RunRecord": "run_record",
        "read_versioned": "run_record",
        "settings_difference": "run_record",
        "complete_steps": "train",
        "run_training": "train",
        "train_parts": "train",
        "validate_run": "prepare",
        "test_error": "truth_metrics",
    },
)
