"""What coordinator and sites agree on before the first round: classes, test prior, and the form of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedul.core import Matrix, Scaling, TaskSpec, validate_test_prior
from fedul.data.files.schema import schema_from_dict
from fedul.data.files.signature import DataSignature, common_signature, signature_difference


@dataclass(frozen=True, eq=False)
class RunSpec(TaskSpec):
    """The task of a run on sites: what all sites share, and what the data of a site must look like.

    Parameters
    ----------
    signature : DataSignature
        What a site's data is compared with when it joins.
    site_adjustment : bool
        Whether each site standardises its rows as if it had the test prior.
    """

    signature: DataSignature = field(default_factory=lambda: DataSignature("array"))
    site_adjustment: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values, for sites and for the run folder."""
        return {
            "classes": list(self.classes),
            "test_prior": self.test_prior.tolist(),
            "signature": self.signature.to_dict(),
            "scaling": vars(self.scaling),
            "schema": None if self.schema is None else self.schema.to_dict(),
            "input_shape": list(self.input_shape),
            "class_mix": None if self.class_mix is None else self.class_mix.tolist(),
            "site_adjustment": self.site_adjustment,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> RunSpec:
        """Return the object from the result of `to_dict`."""
        classes, mix = tuple(map(str, stored["classes"])), stored.get("class_mix")
        return cls(
            classes,
            validate_test_prior(np.array(stored["test_prior"], dtype=np.float64), classes),
            tuple(map(int, stored["input_shape"])),
            Scaling(float(stored["scaling"]["scale"]), float(stored["scaling"]["shift"])),
            schema_from_dict(stored["schema"]),
            None if mix is None else validate_test_prior(np.array(mix, dtype=np.float64), classes, where="class-mix"),
            signature=DataSignature.from_dict(stored["signature"]),
            site_adjustment=bool(stored.get("site_adjustment", False)),
        )

    def mismatch(self, signature: DataSignature) -> str:
        """Return why a site with such data cannot take part; empty if it can."""
        return signature_difference(self.signature, signature)


def agree_on_spec(
    signatures: Mapping[str, DataSignature], classes: Sequence[str], test_prior: Matrix
) -> tuple[RunSpec, dict[str, str], list[str]]:
    """Derive the spec of a run from the signatures of its sites.

    The form that most sites have is taken; among equally common ones, that of the first site by name.

    Returns
    -------
    RunSpec
        The spec.
    dict of str to str
        Sites that do not fit, with the reason.
    list of str
        Warnings about columns.
    """
    reference, mismatches = choose_form(signatures)
    matching = {name: signatures[name] for name in sorted(signatures) if name not in mismatches}
    common = common_signature(matching, classes)
    # Later sites are compared with names of columns only; statistics of the first sites are not passed on.
    columns = {name: type(stats)() for name, stats in reference.columns.items()}
    signature = replace(reference, columns=columns, shape=common.shape if reference.shape else ())
    spec = RunSpec(tuple(classes), test_prior, common.shape, common.scaling, common.schema, signature=signature)
    return spec, mismatches, list(common.warnings)


def choose_form(signatures: Mapping[str, DataSignature]) -> tuple[DataSignature, dict[str, str]]:
    """Return the form that most sites have, and the sites that have another one, with the reason.

    Among equally common forms, that of the first site by name is taken.
    """
    names = sorted(signatures)

    def count_matches(name: str) -> int:
        return sum(not signature_difference(signatures[name], signatures[other]) for other in names)

    reference = signatures[max(names, key=count_matches)]
    return reference, {name: why for name in names if (why := signature_difference(reference, signatures[name]))}
