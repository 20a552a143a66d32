"""Names of the files in a run folder, in one place."""

from __future__ import annotations

CONFIG = "config.json"
"""Everything needed to repeat the run."""

CHOICE = "choice.json"
"""Settings that were chosen on sets left out, with their scores."""

PERTURBED_PRIORS = "perturbed-priors.safetensors"
"""Class priors with noise, if they are perturbed, so that they are drawn once."""

METRICS = "metrics.jsonl"
"""One line of metrics per round."""

STATUS = "status.json"
"""What the run does, while it goes on."""

TRACKING = "tracking.json"
"""Which runs of which trackers show this run."""

TENSORBOARD = "tensorboard"
"""Folder of what TensorBoard shows, unless the user names another."""

CHECKPOINT = "checkpoint/state.safetensors"
"""The state to resume from."""

SNAPSHOTS = "checkpoint/rounds"
"""Folder of the checkpoints of earlier rounds that are kept, if any are."""

CLIENT_STATES = "checkpoint/clients"
"""Folder of what methods and algorithms keep per client."""

LEDGER = "privacy/ledger.jsonl"
"""What the rows of each client have paid for, if they are protected."""

CLIENT_LEDGER = "privacy/clients.jsonl"
"""What each client as a whole has paid for, if clients are protected."""

MODEL = "model"
"""Folder of the classifier of the selected round."""

SITE_MODELS = "model/sites"
"""Folder of the classifiers of single sites, under algorithms that keep a part of the model at the clients."""

RESULT = "result.json"
"""Result of the run; its presence says that the run is finished."""

MEASUREMENT = "measurement.json"
"""What a comparison on a user's own data measures of the run."""

EVALUATION = "evaluation.json"
"""Accuracy without labels and the assumption test."""

CHECK = "check.json"
"""Diagnostics of data and priors."""

AUDIT = "audit.json"
"""Result of attacks on the configuration of the run."""

FOLDS = "evaluation"
"""Folder of the runs that evaluation trains."""

REPORT = "report.html"
"""The report page."""

RUN_SPEC = "run_spec.json"
"""What coordinator and sites agreed on (runs on Flower only)."""

MODEL_CARD = "model-card.json"
"""The model card; a Markdown file with the same name stands beside it."""

ONNX_MODEL = "model.onnx"
"""The classifier as an ONNX file."""
