"""MkDocs hook: `folder/*` in the navigation stands for the pages of that folder that are not listed.

A new page appears on the site without a line in `mkdocs.yml`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the patterns of the navigation by pages."""
    docs = Path(config.docs_dir)
    pages = sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    config.nav = expand(config.nav, pages)
    return config


def expand(nav: Any, pages: list[str]) -> Any:
    """Return the navigation with the pages that its patterns match.

    >>> expand([{"Guide": ["a/x.md", "a/*"]}], ["a/b/c.md", "a/w.md", "a/x.md"])
    [{'Guide': ['a/x.md', 'a/w.md']}]
    """
    return _expand(nav, pages, set(_listed(nav)))


def _expand(part: Any, pages: list[str], listed: set[str]) -> Any:
    if isinstance(part, dict):
        return {title: _expand(below, pages, listed) for title, below in part.items()}
    if isinstance(part, list):
        return [each for item in part for each in _items(item, pages, listed)]
    return part


def _items(item: Any, pages: list[str], listed: set[str]) -> list[Any]:
    if isinstance(item, str) and item.endswith("/*"):
        folder = item.removesuffix("/*")
        return [page for page in pages if page.rpartition("/")[0] == folder and page not in listed]
    return [_expand(item, pages, listed)]


def _listed(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    else:
        for each in part.values() if isinstance(part, dict) else part:
            yield from _listed(each)
