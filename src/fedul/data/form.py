"""The form of data, without a row of it: parts of a federation show theirs, and agree on one schema.

In one process there is one part; across sites each sends its form, and whose does not fit is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedul.errors import InputError
from fedul.federation import Scaling
from fedul.schema import Schema


@dataclass(frozen=True)
class Form:
    """What rows look like: columns of a table (see `fedul.schema.facts`), or arrays and images of one shape."""

    kind: str  # table, images or array
    columns: Mapping[str, Any] = field(default_factory=dict)  # name -> Facts, in the order of the columns
    shape: tuple[int, ...] = ()  # of one row; empty for a table, whose categories decide it
    scaling: Scaling = field(default_factory=Scaling)

    def plain(self) -> dict[str, Any]:
        """What a site sends of it: values that only few rows have are left out."""
        columns = [{"name": name, **about.shown().plain()} for name, about in self.columns.items()]
        return {"kind": self.kind, "columns": columns, "shape": list(self.shape), "scaling": vars(self.scaling)}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> Form:
        """What `plain` gave; any fault in it is a ValueError."""
        from fedul.schema.facts import Facts

        try:
            columns = {str(about.pop("name")): Facts.from_plain(about) for about in map(dict, stored["columns"])}
            if not all(name.isprintable() for name in [*columns, *(about.strange for about in columns.values())]):
                raise ValueError("names that cannot be read")
            scaling = Scaling(float(stored["scaling"]["scale"]), float(stored["scaling"]["shift"]))
            return cls(str(stored["kind"]), columns, tuple(map(int, stored["shape"])), scaling)
        except (KeyError, TypeError, AttributeError, OverflowError):
            raise ValueError("not a form of data") from None


@dataclass(frozen=True, eq=False)
class CommonForm:
    """What parts agreed on."""

    schema: Schema | None
    shape: tuple[int, ...]
    scaling: Scaling
    remarks: Sequence[str]


def common_form(forms: Mapping[str, Form], classes: Sequence[str]) -> CommonForm:
    """The one form of all parts, by their names; tables are standardised by the moments of all rows together."""
    first, form = next(iter(forms.items()))
    for name, other in forms.items():
        if problem := difference(form, other):
            raise InputError(f"{name}: {problem}, unlike {first}; all need rows of one form.")
    if form.kind == "table":
        from fedul.schema.facts import Facts
        from fedul.schema.learned import schema_of

        columns = {name: sum((each.columns[name] for each in forms.values()), Facts()) for name in form.columns}
        schema, remarks = schema_of(columns, classes)
        return CommonForm(schema, schema.shape, Scaling(), remarks)
    if form.kind == "images":
        from fedul.schema.images import ImageSchema

        images = ImageSchema(max(each.shape[0] for each in forms.values()), *form.shape[1:])
        return CommonForm(images, images.shape, form.scaling, ())
    return CommonForm(None, form.shape, form.scaling, ())


def difference(form: Form, other: Form) -> str:
    """In what the other differs, in words; empty if it fits. Grey images and coloured ones do."""
    if other.kind != form.kind:
        return f"has rows of another kind ({other.kind}, not {form.kind})"
    for here, there, what in ((form, other, "lacks"), (other, form, "has a further")):
        if lost := [name for name in here.columns if name not in there.columns]:
            return f"{what} column '{lost[0]}'"
    skipped = 1 if form.kind == "images" else 0
    if other.shape[skipped:] != form.shape[skipped:] or other.scaling != form.scaling:
        return f"has rows of shape {other.shape}, not {form.shape}, or scaled otherwise"
    return ""
