"""Write a folder from which fedul can be installed without a package index.

    python tools/wheelhouse.py wheelhouse --extras flower,privacy

The folder has the wheels of fedul and of everything that it needs, in the versions of constraints.txt, for the system,
processor and Python version of this interpreter; `requirements.txt`, the list of them with their hashes; and
`SHA256SUMS`. `docs/federations/air-gapped.md` describes how to install from it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS, SUMS = "requirements.txt", "SHA256SUMS"
WHEEL = re.compile(r"^(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl$")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the wheel of fedul, collect those that it needs, and list them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder to write; must be new or empty")
    parser.add_argument("--extras", default="", help="extras of fedul, separated by commas")
    parser.add_argument("--wheel", type=Path, help="wheel of fedul, if it is already built")
    options = parser.parse_args(arguments)
    if options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder} is not empty; choose another folder")
    extras = [name.strip() for name in options.extras.split(",") if name.strip()]
    write_wheelhouse(options.folder, extras, options.wheel)
    files = sorted(options.folder.glob("*.whl"))
    size = sum(file.stat().st_size for file in files) / 1e6
    print(f"{options.folder}: {len(files)} wheels, {size:.0f} MB; see docs/federations/air-gapped.md")


def write_wheelhouse(folder: Path, extras: Sequence[str] = (), wheel: Path | None = None) -> None:
    """Write the wheels, `requirements.txt` and `SHA256SUMS` into a folder.

    Parameters
    ----------
    folder : Path
        New or empty folder.
    extras : sequence of str
        Extras of fedul whose packages are included.
    wheel : Path, optional
        The wheel of fedul; it is built from this repository if it is not given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if wheel is None:
        pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
        (wheel,) = folder.glob("fedul-*.whl")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    extra = f"[{','.join(extras)}]" if extras else ""
    pip("wheel", *constraints, "--wheel-dir", str(folder), f"fedul{extra} @ {wheel.resolve().as_uri()}")
    wheels = sorted(folder.glob("*.whl"))
    (folder / REQUIREMENTS).write_text("".join(requirement(file, extra) for file in wheels), encoding="utf-8")
    listed = [*wheels, folder / REQUIREMENTS]
    sums = "".join(f"{sha256(file)}  {file.name}\n" for file in listed)  # the format of sha256sum
    (folder / SUMS).write_text(sums, encoding="utf-8")


def requirement(wheel: Path, extra: str) -> str:
    """Return the line of a wheel in `requirements.txt`, with the hash that pip verifies."""
    parts = WHEEL.match(wheel.name)
    assert parts is not None, wheel.name
    name, version = parts["name"].replace("_", "-"), parts["version"]
    return f"{name}{extra if name == 'fedul' else ''}=={version} --hash=sha256:{sha256(wheel)}\n"


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def pip(*words: str) -> None:
    """Run pip of this interpreter; its messages go to standard error."""
    subprocess.run([sys.executable, "-m", "pip", words[0], "--quiet", *words[1:]], stdout=sys.stderr, check=True)


if __name__ == "__main__":
    main()
