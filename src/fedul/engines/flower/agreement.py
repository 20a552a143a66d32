"""What coordinator and sites agree on before the first round: classes, the population, and the form of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedul.data.form import Form, common_form, difference
from fedul.federation import Scaling
from fedul.priors import Matrix, validate_test_prior
from fedul.schema import Schema, from_plain


@dataclass(frozen=True, eq=False)
class Agreement:
    """As a federation is agreed on, without its clients (see `fedul.federation.Agreed`)."""

    classes: Sequence[str]
    test_prior: Matrix  # (K,)
    form: Form  # what a site's rows must look like
    scaling: Scaling
    schema: Schema | None
    input_shape: tuple[int, ...]

    def plain(self) -> dict[str, Any]:
        """As JSON has it, for sites and for the run's folder."""
        return {
            "classes": list(self.classes),
            "test_prior": self.test_prior.tolist(),
            "form": self.form.plain(),
            "scaling": vars(self.scaling),
            "schema": None if self.schema is None else self.schema.plain(),
            "input_shape": list(self.input_shape),
        }

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> Agreement:
        """What `plain` gave."""
        classes = tuple(map(str, stored["classes"]))
        return cls(
            classes,
            validate_test_prior(np.array(stored["test_prior"], dtype=np.float64), classes),
            Form.from_plain(stored["form"]),
            Scaling(float(stored["scaling"]["scale"]), float(stored["scaling"]["shift"])),
            from_plain(stored["schema"]),
            tuple(map(int, stored["input_shape"])),
        )

    def objection(self, form: Form) -> str:
        """Why a site with such rows cannot take part; empty if it can."""
        return difference(self.form, form)


def agreed(
    forms: Mapping[str, Form], classes: Sequence[str], test_prior: Matrix
) -> tuple[Agreement, dict[str, str], list[str]]:
    """What the sites agree on, why some of them cannot take part, and what the coordinator should know.

    The form that most sites have counts (of two that are as common, that of the first site by name).
    """
    names = sorted(forms)
    alike = Counter({name: sum(not difference(forms[name], forms[other]) for other in names) for name in names})
    model = forms[alike.most_common(1)[0][0]]
    refused = {name: problem for name in names if (problem := difference(model, forms[name]))}
    taking_part = {name: forms[name] for name in names if name not in refused}
    common = common_form(taking_part, classes)
    # Of the form only what later sites are compared with: what columns hold is nobody else's business.
    columns = {name: type(about)() for name, about in model.columns.items()}
    form = replace(model, columns=columns, shape=common.shape if model.shape else ())
    agreement = Agreement(tuple(classes), test_prior, form, common.scaling, common.schema, common.shape)
    return agreement, refused, list(common.remarks)
