"""Download of public data sets with pooch, verified against known hashes; a file is complete or absent.

Addresses and hashes are the published ones; a mirror must hold the same files.
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

from fedul.data import SOURCES, find_source
from fedul.data.source import expand_folder, user_cache
from fedul.errors import EnvironmentFailure, InputError, unknown_name


class Progress(Protocol):
    """Progress bar as pooch uses it: `total` is set for every file, and `close` is called at its end."""

    total: int

    def update(self, n: int, /) -> object:
        """Advance by a number of bytes."""

    def reset(self) -> object:
        """Start again at zero."""

    def close(self) -> object:
        """End the bar of a file."""


@dataclass(frozen=True)
class Remote:
    """A data set on the internet.

    Parameters
    ----------
    name : str
        Name of the data set.
    base : str
        Address of the folder.
    hashes : mapping of str to str
        By file, its sha256, or "md5:...".
    members : mapping of str to range
        By path in the archive, the accepted sizes; empty if files are not archives.
    """

    name: str
    base: str
    hashes: Mapping[str, str]
    members: Mapping[str, range] = field(default_factory=dict)


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
    {  # only md5 is published
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
    """Download a data set if it is not there yet.

    Parameters
    ----------
    name : str
        Name of the data set.
    data_dir : str, optional
        Folder for data sets; by default the user's cache.
    mirror : str, optional
        Address that replaces the published one, except for the file names.
    progress : Progress, optional
        Progress bar.

    Returns
    -------
    Path
        Folder of the data set.
    """
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    if SOURCES[name].embedded and (path := find_source(name)):
        return path
    if name not in REMOTES:
        how = SOURCES[name].instructions or "get its files and point --data-dir or FEDUL_DATA to them"
        raise InputError(f"{name} cannot be fetched by fedul; {how}.")
    folder = (user_cache() if data_dir is None else expand_folder(data_dir)) / name
    return download(REMOTES[name], folder, mirror=mirror, progress=progress)


def download(remote: Remote, folder: Path, *, mirror: str | None = None, progress: Progress | None = None) -> Path:
    """Download the files that the folder lacks; complete files stay if a later one fails."""
    base = remote.base if mirror is None else mirror
    if not _is_web_address(base):
        raise InputError(f"'{base}' is not a mirror's address; give one that begins with https:// or http://.")
    base = base.rstrip("/") + "/"
    if remote.members and _complete(folder, remote.members):
        return folder
    try:
        with _remove_new_folders_if_empty(folder):
            if remote.members:
                with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as staging:
                    for file in remote.hashes:
                        _retrieve(remote, base, file, Path(staging), progress)
                        _unpack(remote, Path(staging) / file, Path(staging), folder)
            else:
                for file in remote.hashes:
                    _retrieve(remote, base, file, folder, progress)
    except OSError as problem:
        raise EnvironmentFailure(
            f"could not write {remote.name} to {folder}: {problem.strerror or problem}; "
            "make room or choose another folder with --data-dir."
        ) from None
    return folder


def _retrieve(remote: Remote, base: str, file: str, folder: Path, progress: Progress | None) -> None:
    import pooch
    from requests.exceptions import RequestException

    pooch.get_logger().setLevel("WARNING")
    # A server that unpacks a .gz on the way would change its hash.
    headers = {"Accept-Encoding": "identity"}
    over_http = pooch.HTTPDownloader(progressbar=progress or False, chunk_size=2**16, headers=headers)

    def readable(url: str, temporary: str, pooch: object) -> None:
        over_http(url, temporary, pooch)
        os.chmod(temporary, 0o644)  # pooch's temporary files are private, but a data folder may be shared

    try:
        pooch.retrieve(base + file, remote.hashes[file], fname=file, path=folder, downloader=readable)
    except RequestException as problem:
        raise EnvironmentFailure(
            f"could not fetch {base}{file}: {_reason(problem)}; try again later, or give another address with --mirror."
        ) from None
    except ValueError:
        raise EnvironmentFailure(
            f"{base}{file} was refused, because its checksum is not that of the published {remote.name}; "
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
    reasons = {
        exceptions.Timeout: "the server did not answer in time",
        exceptions.SSLError: "the server's certificate could not be verified",
        exceptions.ChunkedEncodingError: "the connection broke off",
    }
    return next((text for kind, text in reasons.items() if isinstance(problem, kind)), "no connection to the server")


def _unpack(remote: Remote, archive: Path, staging: Path, folder: Path) -> None:
    """Move the wanted members into the folder; paths of the archive are not used."""
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
        raise EnvironmentFailure(
            f"{archive.name} of {remote.name} cannot be unpacked ({problem}); fetch it again."
        ) from None
    if missing := [name for name in remote.members if name not in unpacked]:
        raise EnvironmentFailure(
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
def _remove_new_folders_if_empty(folder: Path) -> Iterator[None]:
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in new:  # deepest first; a folder that is not empty is not removed
            with contextlib.suppress(OSError):
                path.rmdir()
