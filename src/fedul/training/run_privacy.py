"""Privacy statements of a finished run."""

from __future__ import annotations

import numpy as np

from fedul.config import TrainConfig
from fedul.core import Federation, Study, TaskSpec
from fedul.data.files.schema.table import TableSchema
from fedul.engines.base import Engine
from fedul.privacy import client_statement, statement
from fedul.privacy.statement import PrivacyStatement, row_statement


def privacy_statements(
    spec: TaskSpec, study: Study | None, engine: Engine, config: TrainConfig, client_epsilon: float | None = None
) -> tuple[PrivacyStatement, ...]:
    """Return what a run guarantees; empty if it protects nothing.

    Parameters
    ----------
    spec : TaskSpec
        What all clients share.
    study : Study or None
        The data; None if it stays at the sites.
    engine : Engine
        The engine, which knows what clients have paid.
    config : TrainConfig
        The configuration.
    client_epsilon : float or None
        What each client as a whole has paid; None if it is infinite.
    """
    statements: list[PrivacyStatement] = []
    if config.protects_rows:
        statements.append(_row_statement(spec, study, engine, config))
    if config.protects_clients:
        other = [client_statement.CLIENT_STATES] if study is not None else []
        other += [statement.ENCODING] if isinstance(spec.schema, TableSchema) else []
        other += [statement.TRUE_LABELS] if study is not None and study.truth is not None else []
        statements.append(client_statement.client_statement(config, client_epsilon, tuple(other)))
    if config.prior_epsilon is not None:
        repeated = study is not None and _has_repeated_rows(study.federation)
        several = (client_statement.OCCURRENCES,) if repeated else ()
        statements.append(client_statement.prior_statement(config, several))
    return tuple(statements)


def _row_statement(spec: TaskSpec, study: Study | None, engine: Engine, config: TrainConfig) -> PrivacyStatement:
    other: list[str] = []
    if isinstance(spec.schema, TableSchema) and not (study and study.origin.get("public_columns")):
        other.append(statement.ENCODING)
    if study is None:
        other.append(statement.SITE_STATISTICS)
        return row_statement(config, engine.epsilon, tuple(other))
    if study.truth is not None:
        other.append(statement.TRUE_LABELS)
    other += [statement.DIGEST, statement.COMMANDS]
    trust = f"{statement.LOCAL_NOISE} {statement.ONE_PROCESS}"
    return row_statement(config, engine.epsilon, tuple(other), trust)


def _has_repeated_rows(federation: Federation) -> bool:
    """Return whether a row of a client is in several of its sets."""
    return any(
        len(np.unique(index)) < len(index)
        for index in (np.concatenate([c.train.index.numpy(), c.held_out.index.numpy()]) for c in federation.clients)
    )
