"""MkDocs hook: parts of pages that follow from the program, so that they are never out of date.

`<!-- generated: NAME -->` in a page stands for a part:

- `commands`: every command of the command line with its options, defaults and examples,
- `options CLASS`: the options of a configuration class of `fedul`,
- `methods`, `algorithms`: the registered components with their settings.

CHANGELOG.md and CONTRIBUTING.md of the repository become pages of the site.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

from program import algorithms, commands, methods, options

MARK = re.compile(r"^<!-- generated: (\w+) ?([\w.]*) -->$", re.MULTILINE)
PARTS = {"commands": commands, "options": options, "methods": methods, "algorithms": algorithms}
ROOT_PAGES = {"CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are in the root of the repository."""
    root = Path(config.config_file_path).parent
    for source, page in ROOT_PAGES.items():
        text = (root / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the marks of a page by their parts."""
    return MARK.sub(lambda mark: PARTS[mark[1]](*filter(None, [mark[2]])), markdown)
