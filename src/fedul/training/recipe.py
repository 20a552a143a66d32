"""How to train: a configuration, and objects that replace names in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedul._utils.registry import Registry
from fedul._utils.settings import build_config, to_dict
from fedul.algorithms import ALGORITHMS, make_algorithm
from fedul.algorithms.base import Algorithm
from fedul.config import GENERIC, TrainConfig
from fedul.core import Truth
from fedul.errors import InputError, wrong_type
from fedul.methods import METHODS, bind_run, make_method
from fedul.methods.base import Method
from fedul.methods.row_private import make_row_private
from fedul.models import Model

DECIDED_LATER = {*GENERIC, "choose", "model", "rounds", "patience", "precision"}
"""Settings that may be decided when the data is known."""


def is_given(name: str, value: Any) -> bool:
    """Return whether a setting has a value; "auto", and 0 rounds, stand for none.

    >>> is_given("l2", None), is_given("l2", 0.0), is_given("rounds", 0)
    (False, True, False)
    """
    return value not in (None, "auto") and (value != 0 or name not in ("rounds", "patience"))


@dataclass(frozen=True, eq=False)
class Recipe:
    """How to train: the configuration, and the objects that were passed in place of names.

    Parameters
    ----------
    config : TrainConfig
        The configuration; it contains the name under which the run records an object.
    method, algorithm, model
        The objects; None where the configuration names them.
    """

    config: TrainConfig
    method: Method | None = None
    algorithm: Algorithm | None = None
    model: Model | None = None

    @classmethod
    def of(
        cls,
        config: TrainConfig | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        method: str | Method | None = None,
        algorithm: str | Algorithm | None = None,
        model: Model | None = None,
    ) -> Recipe:
        """Return a recipe from a configuration, single settings that override it, and names or objects."""
        if config is not None and not isinstance(config, TrainConfig):
            raise wrong_type("config", "a fedul.TrainConfig", config)
        values = {**({} if config is None else to_dict(config)), **(settings or {})}
        given: dict[str, Any] = {}
        registries: tuple[tuple[str, Any, type[Any], Registry[Any]], ...] = (
            ("method", method, Method, METHODS),
            ("algorithm", algorithm, Algorithm, ALGORITHMS),
        )
        for name, part, kind, registry in registries:
            if isinstance(part, str):
                values[name] = part
            elif isinstance(part, kind):
                if f"{name}_option" in (settings or {}):
                    raise InputError(f"{name}-option: set the options on the {name} object itself.")
                values[name], values[f"{name}_option"] = registry.describe(part)
                given[name] = part
            elif part is not None:
                raise wrong_type(name, f"a name or an object of fedul.{kind.__name__}", part)
        if isinstance(model, str):
            values["model"] = model
        elif model is not None:
            given["model"] = model
        return cls(build_config(TrainConfig, values), **given)

    def as_stored(self, stored: TrainConfig) -> Recipe:
        """Return the recipe with the settings of a stored run where none is given, to resume it."""
        open_ = {
            name for name, value in to_dict(self.config).items() if name in DECIDED_LATER and not is_given(name, value)
        }
        if self.config.protects_rows and not stored.protects_rows:  # another run, which is refused with this reason
            open_ -= {"select", "patience"}
        values = {name: getattr(stored, name) for name in open_ if name != "model" or self.model is None}
        if not self.config.method_option and self.method is None and self.config.method == stored.method:
            values["method_option"] = stored.method_option
        if not self.config.algorithm_option and self.config.algorithm in (None, stored.algorithm):
            values["algorithm_option"] = stored.algorithm_option
        return replace(self, config=replace(self.config, **values))

    def make_method(self, truth: Truth | None) -> Method:
        """Return the method of the run; if rows are private, its form with private rows."""
        method = self._given_method(truth)
        return make_row_private(method)[0] if self.config.protects_rows else method

    def left_out(self, truth: Truth | None) -> Sequence[str]:
        """Return sentences on what of the method is left out, because rows are private."""
        return make_row_private(self._given_method(truth))[1] if self.config.protects_rows else ()

    def _given_method(self, truth: Truth | None) -> Method:
        config = self.config
        if self.method is None:
            return make_method(config.method, config.method_option, truth, config.seed, config.loss)
        if config.loss is not None:
            raise InputError("loss: set the score on the method object itself.")
        return bind_run(self.method, truth, config.seed)

    def make_algorithm(self) -> Algorithm:
        """Return the algorithm of the run."""
        if self.algorithm is not None:
            return self.algorithm
        return make_algorithm(self.config.algorithm_name, self.config.algorithm_option)
