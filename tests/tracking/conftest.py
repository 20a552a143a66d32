from __future__ import annotations

from .mlflow_runs import empty_database, store

__all__ = ["empty_database", "store"]
