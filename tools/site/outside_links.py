"""MkDocs hook: links of a page to files of the repository that are not on the site.

The changelog and the contributing guide are pages of the site. Of a link to another file the text stays, with the path
as its title.
"""

from __future__ import annotations

import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PAGES = {"CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the links that leave the folder of the documentation."""
    return LINK.sub(lambda link: replaced(link, page.file.src_uri), markdown)


def replaced(link: re.Match[str], page: str) -> str:
    """Return a link as it is on the site.

    >>> replaced(LINK.match("[tests](../../tests/x.py)"), "guide/a.md")
    '<span title="tests/x.py">tests</span>'
    >>> replaced(LINK.match("[changes](../../CHANGELOG.md)"), "guide/a.md")
    '[changes](../changes.md)'
    >>> replaced(LINK.match("[b](b.md#c)"), "guide/a.md")
    '[b](b.md#c)'
    """
    text, (name, _, anchor) = link[1], link[2].partition("#")
    if not name or "://" in name or name.startswith("mailto:"):
        return link[0]
    target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), name))
    if page in PAGES.values() and page != "index.md":  # these are in the root of the repository
        target = posixpath.normpath(posixpath.join("docs", name))
        if target.removeprefix("docs/") in PAGES:
            target = target.removeprefix("docs/")
    if target in PAGES:
        to = posixpath.relpath(PAGES[target], posixpath.dirname(page) or ".")
        return f"[{text}]({to}{'#' + anchor if anchor else ''})"
    if target.startswith("docs/"):
        return link[0]
    return f'<span title="{target}">{text}</span>'
