"""A site whose processes reply wrongly, in whatever Python they run."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent, indent

LOADED = """\
import os, signal, sys, time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

def instead(data, request, right):
    from fedul.engines.flower.protocol.message import Message
{body}

class Saboteur(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "fedul.engines.flower.site.handlers":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module
        def spoiled(module):
            run(module)
            right = module.HANDLERS["{kind}"]
            module.HANDLERS["{kind}"] = lambda data, request: instead(data, request, right)
        spec.loader.exec_module = spoiled
        return spec

sys.meta_path.insert(0, Saboteur())
"""
WAIT_AT_GATE = """
    gate = Path(os.environ["GATES"]) / f"{data.config.name}-{request.document['round']}"
    while gate.exists():
        gate.with_suffix(".reached").touch()
        time.sleep(0.1)
    return right(data, request)
"""
"""Replies to "train": a site waits while the gate of its round exists."""


def sabotage(folder: Path, kind: str, body: str) -> str:
    """Return a PYTHONPATH with which a site replies to one kind of request with this body of `(data, request, right)`.

    Python imports `sitecustomize` before any other module; `right` returns the right reply.
    """
    folder.mkdir(exist_ok=True)
    text = LOADED.replace("{kind}", kind).replace("{body}", indent(dedent(body), "    "))
    (folder / "sitecustomize.py").write_text(text)
    return f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
