"""Methods: what a client minimises. One file per method, one line in the registry.

Other packages register methods as entry points of the group ``fedul.methods``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from fedul._utils.registry import Registry
from fedul.errors import InputError

if TYPE_CHECKING:
    from fedul.core import Truth
    from fedul.methods.base import Method

METHODS: Registry[Method] = Registry(
    "method",
    {
        "fedul": "fedul.methods.fedul:FedUL",
        "fedul-combined": "fedul.methods.fedul_combined:FedULCombined",
        "fedul-refined": "fedul.methods.fedul_refined:FedULRefined",
        "fedpl": "fedul.methods.fedpl:FedPL",
        "fedllp": "fedul.methods.fedllp:FedLLP",
        "fedllp-vat": "fedul.methods.fedllp_vat:FedLLPVAT",
        "soft-labels": "fedul.methods.soft_labels:SoftLabels",
        "soft-em": "fedul.methods.soft_em:SoftEM",
        "rcm": "fedul.methods.rcm:RCM",
        "llpfc": "fedul.methods.llpfc:LLPFC",
        "easyllp": "fedul.methods.easyllp:EasyLLP",
        "llp-pvc": "fedul.methods.llp_pvc:LLPPVC",
        "supervised": "fedul.methods.supervised:Supervised",
    },
    "fedul.methods",
    "fedul.methods.base:Method",
)


def make_method(
    name: str, options: Mapping[str, Any], truth: Truth | None = None, seed: int = 0, loss: str | None = None
) -> Method:
    """Build a method by name.

    Parameters
    ----------
    name : str
        A name of `METHODS`.
    options : mapping of str to object
        Settings of the method.
    truth : Truth, optional
        Labels of research data, for a method that has a field for them.
    seed : int, default=0
        Seed of the run, for a method that has a field for it.
    loss : str, optional
        The option ``--loss``: score of the predicted set, for a method that has a field ``score``.
    """
    if loss is not None:
        if "score" not in {f.name for f in fields(METHODS.load(name))}:  # type: ignore[arg-type]
            raise InputError(f"loss: '{loss}' is a loss of fedul, -refined and -combined; method {name} has its own.")
        if options.get("score", loss) != loss:
            raise InputError(f"loss: '{loss}', but the method's score is '{options['score']}'; give one of them.")
        options = {**options, "score": loss}
    return bind_run(METHODS.build(name, options), truth, seed)


def bind_run(method: Method, truth: Truth | None, seed: int) -> Method:
    """Return the method with the seed of a run set, if it has a field for it, and the truth, if it needs it."""
    names = {f.name for f in fields(method)} if is_dataclass(method) else set[str]()
    values = {"seed": seed, **({"truth": truth} if method.needs_truth else {})}
    bound = {name: value for name, value in values.items() if name in names}
    return replace(method, **bound) if bound else method  # type: ignore[type-var]
