"""What `fedul check` read: classes, class priors and columns; and which sets a method compares."""

from __future__ import annotations

from typing import Any

from fedul.core import Federation, Study, pooled_class_mix
from fedul.evaluation.check_result import ClassReading, PriorsReading
from fedul.evaluation.set_information import ExpectedRows
from fedul.methods.base import Method
from fedul.training.choice import resolve_recipe
from fedul.training.left_out import assign_folds
from fedul.training.recipe import Recipe


def read_data(study: Study, expected: ExpectedRows) -> dict[str, Any]:
    """Return the fields of `CheckResult` that say what was read: classes, priors and columns."""
    federation = study.federation
    mix, rows = pooled_class_mix(federation.clients), expected.rows.sum(axis=0)
    shares = zip(federation.classes, mix, rows, federation.test_prior, strict=True)
    scopes = [client.prior_scope for client in federation.clients]
    return {
        "classes": tuple(ClassReading(name, *map(float, numbers)) for name, *numbers in shares),
        "priors": PriorsReading(
            study.priors_unit,
            tuple(dict.fromkeys(scope.of for scope in scopes)),
            max(scope.rounding for scope in scopes),
        ),
        "columns": tuple(study.columns),
    }


def pools_sets(federation: Federation, method: str | Method | None) -> bool:
    """Return whether a method compares the sets of all clients; of settings to choose from, the first counts."""
    recipe = Recipe.of(method=method)
    made = recipe.make_method(None)
    if made.needs_truth:
        return False
    return resolve_recipe(recipe, made, federation, None).make_method(None).pools_sets


def sets_to_leave_out(federation: Federation) -> int | None:
    """Return the number of sets on which `fedul.train` can compare settings; None if it has nothing to compare."""
    if len(federation.input_shape) != 1:
        return None
    return sum(int((folds >= 0).sum()) for folds in assign_folds(federation.clients, 0))
