"""The public API: every name resolves, and importing fedul imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fedul


@pytest.mark.parametrize("name", [name for name in dir(fedul) if not name.startswith("_")])
def test_every_public_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(fedul, name)
    assert value.__doc__


def test_star_import_gives_all_names() -> None:
    names: dict[str, object] = {}
    exec("from fedul import *", names)
    assert set(fedul.__all__) <= names.keys()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        fedul.lod  # noqa: B018


def test_importing_fedul_imports_nothing_heavy() -> None:
    heavy = "torch", "numpy", "pandas", "pyarrow", "cattrs", "jinja2", "matplotlib"
    program = f"import sys, fedul; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
