"""Fetches public research data with pooch: checked against known hashes, and whole or not there at all.

The addresses and hashes are those that the data sets are published under; a mirror must hold the same files.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from fedul.data import SOURCES, found
from fedul.data.source import named_folder, user_cache
from fedul.errors import InputError, WorldError, unknown


class Progress(Protocol):
    """A progress bar as pooch drives one: for every file `total` is set, and `close` called at its end."""

    total: int

    def update(self, n: int, /) -> object: ...

    def reset(self) -> object: ...

    def close(self) -> object: ...


@dataclass(frozen=True)
class Remote:
    """A data set on the internet: files with their hashes, or an archive and the members that are wanted."""

    name: str
    base: str
    hashes: Mapping[str, str]  # file -> its sha256, or "md5:..."
    members: Mapping[str, range] = field(default_factory=dict)  # path in the archive -> what its size may be


MNIST = Remote(
    "mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)
FASHION_MNIST = Remote(
    "fashion-mnist",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    {  # md5 is all that is published
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)
CIFAR10 = Remote(
    "cifar10",
    "https://www.cs.toronto.edu/~kriz/",
    {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    {f"cifar-10-batches-bin/{file}": range(30_730_000, 30_730_001) for file in SOURCES["cifar10"].files}
    | {"cifar-10-batches-bin/batches.meta.txt": range(1, 4_096)},
)
REMOTES = {remote.name: remote for remote in (MNIST, FASHION_MNIST, CIFAR10)}


def fetch(
    name: str, data_dir: str | None = None, *, mirror: str | None = None, progress: Progress | None = None
) -> Path:
    """Makes sure that a data set is in `data_dir/name` (default: the user's cache), and returns that folder.

    What is there and right is not fetched again. `mirror` replaces all of the address but the file names.
    """
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    if SOURCES[name].embedded and (path := found(name)):
        return path
    if name not in REMOTES:
        how = SOURCES[name].obtain or "get its files and point --data-dir or FEDUL_DATA to them"
        raise InputError(f"{name} cannot be fetched by fedul; {how}.")
    folder = (user_cache() if data_dir is None else named_folder(data_dir)) / name
    return download(REMOTES[name], folder, mirror=mirror, progress=progress)


def download(remote: Remote, folder: Path, *, mirror: str | None = None, progress: Progress | None = None) -> Path:
    """Makes sure that the data is in the folder; files that arrived whole stay there if a later one fails."""
    base = remote.base if mirror is None else mirror
    if not _is_web_address(base):
        raise InputError(f"'{base}' is not a mirror's address; give one that begins with https:// or http://.")
    base = base.rstrip("/") + "/"
    if remote.members and _complete(folder, remote.members):
        return folder
    try:
        with _new_folders_kept_if_filled(folder):
            if remote.members:
                with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as staging:
                    for file in remote.hashes:
                        _retrieve(remote, base, file, Path(staging), progress)
                        _unpack(remote, Path(staging) / file, Path(staging), folder)
            else:
                for file in remote.hashes:
                    _retrieve(remote, base, file, folder, progress)
    except OSError as problem:
        raise WorldError(
            f"could not write {remote.name} to {folder}: {problem.strerror or problem}; "
            "make room or choose another folder with --data-dir."
        ) from None
    return folder


def _retrieve(remote: Remote, base: str, file: str, folder: Path, progress: Progress | None) -> None:
    import pooch
    from requests.exceptions import RequestException

    pooch.get_logger().setLevel("WARNING")
    # Unpacked on the way by a well-meaning server, a .gz would not have its published hash.
    plain = {"Accept-Encoding": "identity"}
    over_http = pooch.HTTPDownloader(progressbar=progress or False, chunk_size=2**16, headers=plain)

    def readable(url: str, temporary: str, pooch: object) -> None:
        over_http(url, temporary, pooch)
        os.chmod(temporary, 0o644)  # pooch's temporary files are private, but a data folder may be shared

    try:
        pooch.retrieve(base + file, remote.hashes[file], fname=file, path=folder, downloader=readable)
    except RequestException as problem:
        raise WorldError(
            f"could not fetch {base}{file}: {_reason(problem)}; try again later, or give another address with --mirror."
        ) from None
    except ValueError:
        raise WorldError(
            f"{base}{file} was refused, since its checksum is not that of the published {remote.name}; "
            "try again later, or give another address with --mirror."
        ) from None


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _reason(problem: Exception) -> str:
    from requests import exceptions

    if isinstance(problem, exceptions.HTTPError) and problem.response is not None:
        return f"the server answered {problem.response.status_code} {problem.response.reason}"
    if isinstance(problem, exceptions.Timeout):
        return "the server did not answer in time"
    if isinstance(problem, exceptions.SSLError):
        return "the server's certificate could not be verified"
    if isinstance(problem, exceptions.ChunkedEncodingError):
        return "the connection broke off"
    return "no connection to the server"


def _unpack(remote: Remote, archive: Path, staging: Path, folder: Path) -> None:
    """Moves the wanted members into the folder; no path is taken from what the archive says."""
    unpacked: dict[str, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                content = tar.extractfile(member) if member.isreg() and name in remote.members else None
                if content is not None and member.size in remote.members[name]:
                    unpacked[name] = staging / name.replace("/", "-")
                    with open(unpacked[name], "wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise WorldError(f"{archive.name} of {remote.name} cannot be unpacked ({problem}); fetch it again.") from None
    missing = [name for name in remote.members if name not in unpacked]
    if missing:
        raise WorldError(
            f"{archive.name} of {remote.name} lacks {', '.join(missing)} in the published size; "
            "give another address with --mirror."
        )
    for name, path in unpacked.items():
        (folder / name).parent.mkdir(exist_ok=True)
        os.replace(path, folder / name)


def _complete(folder: Path, members: Mapping[str, range]) -> bool:
    return all(
        os.path.isfile(folder / name) and os.path.getsize(folder / name) in sizes for name, sizes in members.items()
    )


@contextlib.contextmanager
def _new_folders_kept_if_filled(folder: Path) -> Iterator[None]:
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in new:  # deepest first; a folder with something in it is not removed
            with contextlib.suppress(OSError):
                path.rmdir()
