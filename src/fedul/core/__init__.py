"""Data model and maths: priors, the transition, clients, federations and the truth of research data."""

from __future__ import annotations

from fedul._utils.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Federation": "federation",
        "check_identifiability": "federation",
        "Index": "inputs",
        "PREDICT_BATCH": "inputs",
        "gather_rows": "inputs",
        "tensor_view": "inputs",
        "RoundMetrics": "metrics",
        "PriorScope": "prior_scope",
        "Matrix": "priors",
        "RANK_TOLERANCE": "priors",
        "SUM_TOLERANCE": "priors",
        "prior_ranks": "priors",
        "validate_class_mix": "priors",
        "validate_priors": "priors",
        "validate_test_prior": "priors",
        "ColumnReading": "reading",
        "SiteAdjustment": "site_adjustment",
        "SiteAdjustments": "site_adjustment",
        "SIGNIFICANCE": "statistics",
        "Z_95": "statistics",
        "paired_p_value": "statistics",
        "Scaling": "task_spec",
        "Schema": "task_spec",
        "TaskSpec": "task_spec",
        "compute_dtype": "task_spec",
        "Transition": "transition",
        "set_loss": "transition",
        "Labels": "truth",
        "Study": "truth",
        "Truth": "truth",
        "Rows": "unlabeled_sets",
        "UnlabeledSets": "unlabeled_sets",
        "pooled_class_mix": "unlabeled_sets",
        "split_held_out": "unlabeled_sets",
        "TensorSpec": "update",
        "Update": "update",
        "UpdateSpec": "update",
        "Weights": "update",
    },
)
