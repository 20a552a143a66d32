"""Conventions of the code and its documentation, checked on the source text without importing fedul."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .places import ROOT

SOURCE = ROOT / "src" / "fedul"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST = 300
PROSE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
RETIRED_PHRASES = ("so many", "whoever", "is told", "are told", "came to")
RETIRED_WORDS = """
Letter Envelope Post sealed packed posted unsealed clerk boss door Silence apology told Told Member Members Candidate
Own OwnDataConfig opinion appraisal appraise Judged judged judge judges judges_along noted kept kept_rows Form Facts
Agreed agreed agreement walk walked Alone Cohort cohort Cohorts Parts Quiet Spoken Reporter reporter Watcher watcher
Together together Contestant contestant contestants entrants Found Declaration declaration at_once looks plain outlook
findings WorldError letter letters candidates remarks troubles own_rows stacked
"""
RETIRED_NAMES = frozenset(RETIRED_WORDS.split())
"""Names of an earlier vocabulary. Each concept has another name now, and one concept has one name."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def parse(module: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(module.read_text(encoding="utf-8"))


def label(path: Path) -> str:
    """Return the path of a file as test ids and messages show it."""
    return path.relative_to(ROOT).as_posix()


def public_definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Yield functions and classes without a leading underscore; of an overloaded function only the implementation."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_") and not is_repeated_declaration(node):
            yield node


def is_repeated_declaration(node: Definition) -> bool:
    """Return whether a function is an overload or the setter of a property, which its first definition documents."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name.endswith(("overload", ".setter")) for name in decorators)


@cache
def class_bases() -> dict[str, set[str]]:
    """Return the names of the direct base classes of all classes of fedul, by name."""
    bases: dict[str, set[str]] = {}
    for module in MODULES:
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ClassDef):
                names = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
                bases.setdefault(node.name, set()).update(names)
    return bases


@cache
def documented_methods() -> dict[str, set[str]]:
    """Return the names of the methods with a docstring of all classes of fedul, by name of the class."""
    methods: dict[str, set[str]] = {"Module": {"forward"}}  # torch.nn.Module documents it
    for module in MODULES:
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ClassDef):
                found = {each.name for each in node.body if isinstance(each, Definition) and ast.get_docstring(each)}
                methods.setdefault(node.name, set()).update(found)
    return methods


@cache
def protocols() -> list[str]:
    """Return the names of the protocols of fedul, which classes implement without inheriting from them."""
    return [name for name, bases in class_bases().items() if "Protocol" in bases]


def is_documented_elsewhere(name: str, method: str) -> bool:
    """Return whether a protocol or a base class of a class, direct or not, documents a method."""
    return is_documented_in_a_base(name, method) or any(method in documented_methods()[each] for each in protocols())


def is_documented_in_a_base(name: str, method: str) -> bool:
    """Return whether a base class of a class, direct or not, documents a method."""
    return any(
        method in documented_methods().get(base, ()) or is_documented_in_a_base(base, method)
        for base in class_bases().get(name, ())
    )


def undocumented(module: Path) -> Iterator[str]:
    """Yield what is public in a module and has no docstring."""
    tree = parse(module)
    if not ast.get_docstring(tree):
        yield "the module"
    for node in public_definitions(tree.body):
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for method in public_definitions(node.body):
                if not ast.get_docstring(method) and not is_documented_elsewhere(node.name, method.name):
                    yield f"{node.name}.{method.name}"


def identifiers(module: Path) -> Iterator[tuple[int, str]]:
    """Yield every name that a module defines or uses, with its line; names are without leading underscores."""
    for node in ast.walk(parse(module)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name.lstrip("_")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name.lstrip("_")
            case ast.keyword(arg=str(name)):
                yield node.lineno, name.lstrip("_")
            case ast.alias(name=name, asname=asname):
                yield node.lineno, (asname or name).rpartition(".")[2].lstrip("_")


def test_the_modules_of_fedul_are_found() -> None:
    assert SOURCE / "__init__.py" in MODULES
    assert len(MODULES) > 100


def test_no_module_is_longer_than_300_lines() -> None:
    lengths = {label(module): len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_everything_public_has_a_docstring() -> None:
    assert [f"{label(module)}: {name}" for module in MODULES for name in undocumented(module)] == []


def test_no_name_of_the_earlier_vocabulary_is_used() -> None:
    used = [(label(module), *found) for module in MODULES for found in identifiers(module)]
    assert [f"{file}:{line}: {name}" for file, line, name in used if name in RETIRED_NAMES] == []


def test_no_phrase_of_the_earlier_vocabulary_is_used() -> None:
    texts = {
        label(file): " ".join(file.read_text(encoding="utf-8").lower().split())
        for file in (*MODULES, *PROSE, *(ROOT / "docs").rglob("*.md"))
    }
    used = [f"{name}: {p}" for name, text in texts.items() for p in RETIRED_PHRASES if re.search(rf"\b{p}\b", text)]
    assert used == []
