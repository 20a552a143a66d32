"""Auditing: attacks on the configuration of a run, with numbers."""

from __future__ import annotations

from fedul._utils.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "audit": "audit",
        "AuditResult": "document",
        "ATTACKS": "document",
    },
)
