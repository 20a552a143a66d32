"""Methods: what a client minimises. One file a method, one line in the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedul.errors import InputError, unknown
from fedul.settings import make_part

if TYPE_CHECKING:
    from fedul.methods.base import Method
    from fedul.truth import Truth

METHODS = {
    "fedul": "fedul.methods.fedul:FedUL",
    "fedul-refined": "fedul.methods.fedul_refined:FedULRefined",
    "fedpl": "fedul.methods.fedpl:FedPL",
    "fedllp": "fedul.methods.fedllp:FedLLP",
    "fedllp-vat": "fedul.methods.fedllp_vat:FedLLPVAT",
    "supervised": "fedul.methods.supervised:Supervised",
}


def make_method(
    name: str, options: Mapping[str, Any], truth: Truth | None = None, seed: int = 0, loss: str | None = None
) -> Method:
    """The method of this name; only one that has a field for it is given the truth."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    module, _, kind = METHODS[name].partition(":")
    method_class = getattr(import_module(module), kind)
    names = {f.name for f in fields(method_class)}
    if loss is not None:
        if "score" not in names:
            raise InputError(f"loss: '{loss}' is a loss of fedul and fedul-refined; method {name} has its own.")
        if options.get("score", loss) != loss:
            raise InputError(f"loss: '{loss}', but the method's score is '{options['score']}'; give one of them.")
        options = {**options, "score": loss}
    method: Any = make_part(method_class, options, f"method {name}")
    extra: dict[str, Any] = {"truth": truth, "seed": seed}
    made: Method = replace(method, **{key: value for key, value in extra.items() if key in names})
    return made
