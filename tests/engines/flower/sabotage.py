"""A site whose own processes do something else than they should, in whatever Python they run."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent, indent

LOADED = """\
import os, signal, sys, time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

def instead(own, asked, right):
    from fedul.engines.flower.letters import Letter
{body}

class Saboteur(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "fedul.engines.flower.site":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module
        def spoiled(module):
            run(module)
            right = module.ANSWERS["{kind}"]
            module.ANSWERS["{kind}"] = lambda own, asked: instead(own, asked, right)
        spec.loader.exec_module = spoiled
        return spec

sys.meta_path.insert(0, Saboteur())
"""


def sabotage(folder: Path, kind: str, body: str) -> str:
    """The PYTHONPATH to start a site with that answers one kind of question by this body, of `(own, asked, right)`.

    Python loads a module of this name before any other; `right` gives the answer that would be given.
    """
    folder.mkdir(exist_ok=True)
    text = LOADED.replace("{kind}", kind).replace("{body}", indent(dedent(body), "    "))
    (folder / "sitecustomize.py").write_text(text)
    return f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
