from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul.data import find_source, read_source
from fedul.data.fetch import REMOTES, Remote, download, fetch
from fedul.errors import EnvironmentFailure, InputError

from ..places import real_data


@dataclass
class Site:
    """A web server on this machine: the folder it serves, its address, and what was asked of it."""

    folder: Path
    address: str = ""
    asked: list[str] = field(default_factory=list)
    sends_at_most: int | None = None


@dataclass
class Bar:
    """A progress bar that only counts."""

    total: int = 0
    done: int = 0
    closed: int = 0

    def update(self, n: int) -> None:
        self.done += n

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = Site(tmp_path / "served")
    served.folder.mkdir()
    yield from serving(served)


def serving(served: Site) -> Iterator[Site]:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            served.asked.append(self.path)

        def copyfile(self, source: Any, outputfile: Any) -> None:
            outputfile.write(source.read()[: served.sends_at_most])

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(served.folder))) as server:
        served.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield served
        server.shutdown()
        thread.join()


@pytest.fixture
def silent_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data"


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def small_mnist(site: Site) -> Remote:
    hashes = {}
    for split, count in [("train", 3), ("t10k", 2)]:
        pixels = np.full((count, 28, 28), count, np.uint8)
        sizes = b"".join(size.to_bytes(4, "big") for size in pixels.shape)
        for kind, content in [
            ("images-idx3", bytes([0, 0, 8, 3]) + sizes + pixels.tobytes()),
            ("labels-idx1", bytes([0, 0, 8, 1]) + sizes[:4] + bytes(range(count))),
        ]:
            packed = gzip.compress(content)
            (site.folder / f"{split}-{kind}-ubyte.gz").write_bytes(packed)
            hashes[f"{split}-{kind}-ubyte.gz"] = sha256(packed)
    return Remote("mnist", site.address, hashes)


def small_cifar(site: Site, extra: dict[str, bytes] | None = None, *, without: str = "") -> Remote:
    batches = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    files = {f"cifar-10-batches-bin/{file}": bytes([i]) + bytes(3072) for i, file in enumerate(batches)}
    members = {name: range(len(content), len(content) + 1) for name, content in files.items()}
    files.pop(f"cifar-10-batches-bin/{without}", None)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in {**files, **(extra or {})}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return served_archive(site, stream.getvalue(), members)


def served_archive(site: Site, archive: bytes, members: dict[str, range]) -> Remote:
    (site.folder / "cifar.tar.gz").write_bytes(archive)
    return Remote("cifar10", site.address, {"cifar.tar.gz": sha256(archive)}, members)


def test_fetched_files_load(site: Site, target: Path) -> None:
    folder = download(small_mnist(site), target / "mnist")
    assert folder == find_source("mnist", str(target))
    assert read_source("mnist", str(target)).train_labels.tolist() == [0, 1, 2]


def test_a_fetched_archive_is_unpacked_and_loads(site: Site, target: Path) -> None:
    download(small_cifar(site), target / "cifar10")
    assert read_source("cifar10", str(target)).train_labels.tolist() == [0, 1, 2, 3, 4]


def test_of_an_archive_only_the_wanted_files_are_kept(site: Site, target: Path) -> None:
    remote = small_cifar(site, {"cifar-10-batches-bin/readme.html": b"read me"})
    download(remote, target)
    assert everything_below(target) == ["cifar-10-batches-bin", *sorted(remote.members)]


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize(("remote", "count"), [(small_mnist, 4), (small_cifar, 6)])
def test_fetched_files_can_be_read_by_others(
    site: Site, target: Path, remote: Callable[[Site], Remote], count: int
) -> None:
    folder = download(remote(site), target)
    below = [folder, *folder.rglob("*")]
    files = [path for path in below if path.is_file()]
    assert [path.stat().st_mode & 0o777 for path in files] == [0o644] * count
    assert {path.stat().st_mode & 0o777 for path in below if path.is_dir()} == {0o755}


def test_a_file_that_is_right_keeps_its_permissions(site: Site, target: Path) -> None:
    remote = small_mnist(site)
    path = download(remote, target) / "train-images-idx3-ubyte.gz"
    path.chmod(0o400)
    download(remote, target)
    assert path.stat().st_mode & 0o777 == 0o400


def test_a_second_fetch_uses_no_network(site: Site, target: Path) -> None:
    mnist, cifar = small_mnist(site), small_cifar(site)
    download(mnist, target / "mnist")
    download(cifar, target / "cifar10")
    site.asked.clear()
    download(mnist, target / "mnist")
    download(cifar, target / "cifar10")
    assert site.asked == []


def test_only_a_file_that_is_missing_or_damaged_is_fetched_again(site: Site, target: Path) -> None:
    remote = small_mnist(site)
    download(remote, target)
    (target / "train-images-idx3-ubyte.gz").write_bytes(b"damaged")
    (target / "t10k-labels-idx1-ubyte.gz").unlink()
    site.asked.clear()
    download(remote, target)
    assert sorted(site.asked) == ["/t10k-labels-idx1-ubyte.gz", "/train-images-idx3-ubyte.gz"]
    assert len(read_source("mnist", str(target)).train_labels) == 3


def test_an_unpacked_file_of_the_wrong_size_is_fetched_again(site: Site, target: Path) -> None:
    remote = small_cifar(site)
    download(remote, target)
    (target / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"cut")
    download(remote, target)
    assert read_source("cifar10", str(target)).test_labels.tolist() == [5]


def test_a_corrupted_download_is_refused_and_nothing_is_left(site: Site, target: Path) -> None:
    remote = small_mnist(site)
    for path in site.folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EnvironmentFailure, match="its checksum is not that of the published mnist"):
        download(remote, target / "mnist")
    assert not target.exists()


def test_a_corrupted_archive_is_refused_and_nothing_is_left(site: Site, target: Path) -> None:
    remote = small_cifar(site)
    (site.folder / "cifar.tar.gz").write_bytes(b"other")
    with pytest.raises(EnvironmentFailure, match="checksum"):
        download(remote, target / "cifar10")
    assert not target.exists()


def test_files_that_arrived_whole_are_kept_when_a_later_one_fails(site: Site, target: Path) -> None:
    remote = small_mnist(site)
    (site.folder / "t10k-images-idx3-ubyte.gz").write_bytes(b"other")
    with pytest.raises(EnvironmentFailure):
        download(remote, target)
    assert everything_below(target) == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]


def test_a_failed_fetch_leaves_what_was_there_before(site: Site, target: Path) -> None:
    remote = small_mnist(site)
    target.mkdir()
    (target / "train-images-idx3-ubyte.gz").write_bytes(b"mine")
    (site.folder / "train-images-idx3-ubyte.gz").write_bytes(b"other")
    with pytest.raises(EnvironmentFailure):
        download(remote, target)
    assert (target / "train-images-idx3-ubyte.gz").read_bytes() == b"mine"
    assert everything_below(target) == ["train-images-idx3-ubyte.gz"]


def test_a_file_that_the_server_does_not_have_is_a_world_error(site: Site, target: Path) -> None:
    remote = small_mnist(site)
    (site.folder / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(EnvironmentFailure, match="the server answered 404"):
        download(remote, target)
    assert not target.exists()


@pytest.mark.parametrize("name", REMOTES)
def test_a_server_that_is_down_is_a_world_error_in_one_sentence(
    name: str, target: Path, silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(EnvironmentFailure, match=f"could not fetch {silent_address}/.*: no connection") as caught:
        fetch(name, str(target), mirror=silent_address)
    assert "\n" not in str(caught.value)
    assert not target.exists()


def test_members_that_point_outside_are_not_unpacked(site: Site, target: Path) -> None:
    evil = {
        "../evil": b"evil",
        "cifar-10-batches-bin/../../evil": b"evil",
        str(target.parent / "evil"): b"evil",
    }
    remote = small_cifar(site, evil)
    download(remote, target / "cifar10")
    assert not list(target.parent.rglob("evil"))
    assert everything_below(target / "cifar10") == ["cifar-10-batches-bin", *sorted(remote.members)]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_not_a_plain_file_is_refused(site: Site, target: Path, kind: bytes) -> None:
    (target.parent / "secret").write_bytes(bytes(7))
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        member.type, member.linkname = kind, str(target.parent / "secret")
        tar.addfile(member)
    remote = served_archive(site, stream.getvalue(), {"cifar-10-batches-bin/test_batch.bin": range(10)})
    with pytest.raises(EnvironmentFailure, match=r"lacks cifar-10-batches-bin/test_batch.bin"):
        download(remote, target / "cifar10")
    assert not target.exists()


def test_an_archive_that_lacks_a_file_is_refused_and_nothing_is_left(site: Site, target: Path) -> None:
    remote = small_cifar(site, without="data_batch_4.bin")
    with pytest.raises(EnvironmentFailure, match=r"lacks cifar-10-batches-bin/data_batch_4.bin"):
        download(remote, target / "cifar10")
    assert not target.exists()


def test_a_member_of_another_size_is_refused(site: Site, target: Path) -> None:
    remote = small_cifar(site, {"cifar-10-batches-bin/data_batch_4.bin": bytes(99)}, without="data_batch_4.bin")
    with pytest.raises(EnvironmentFailure, match=r"lacks cifar-10-batches-bin/data_batch_4.bin"):
        download(remote, target / "cifar10")


@pytest.mark.parametrize("archive", [b"no archive", b"", gzip.compress(b"no archive" * 100, mtime=0)])
def test_what_is_no_archive_is_a_world_error_and_nothing_is_left(site: Site, target: Path, archive: bytes) -> None:
    remote = served_archive(site, archive, {"cifar-10-batches-bin/test_batch.bin": range(10)})
    with pytest.raises(EnvironmentFailure, match="cannot be unpacked"):
        download(remote, target / "cifar10")
    assert not target.exists()


def test_an_archive_that_breaks_off_is_a_world_error_and_nothing_is_left(site: Site, target: Path) -> None:
    members = dict(small_cifar(site).members)
    archive = (site.folder / "cifar.tar.gz").read_bytes()
    remote = served_archive(site, archive[:-40], members)
    with pytest.raises(EnvironmentFailure, match="cannot be unpacked"):
        download(remote, target / "cifar10")
    assert not target.exists()


def test_a_connection_that_breaks_off_is_a_world_error_and_nothing_is_left(site: Site, target: Path) -> None:
    remote = small_mnist(site)
    site.sends_at_most = 20
    with pytest.raises(EnvironmentFailure, match="the connection broke off"):
        download(remote, target / "mnist")
    assert not target.exists()


def test_progress_is_reported_for_every_file_and_ends_complete(site: Site, target: Path) -> None:
    bar, remote = Bar(), small_mnist(site)
    download(remote, target, progress=bar)
    assert bar.closed == 4
    assert bar.done == bar.total == (target / "t10k-labels-idx1-ubyte.gz").stat().st_size


def test_a_mirror_stands_in_for_the_published_address(site: Site, target: Path, silent_address: str) -> None:
    remote = Remote("mnist", silent_address, small_mnist(site).hashes)
    (site.folder / "copy").mkdir()
    for path in site.folder.glob("*.gz"):
        path.rename(site.folder / "copy" / path.name)
    download(remote, target, mirror=f"{site.address}/copy/")
    assert find_source("mnist", str(target)) == target


@pytest.mark.parametrize(
    "mirror",
    ["ftp://example.org", "example.org/data", "http://", "file:///etc", "http://[", "http://a:b", ""],
)
def test_a_mirror_that_is_no_web_address_is_an_input_error(target: Path, mirror: str) -> None:
    with pytest.raises(InputError, match="is not a mirror's address"):
        fetch("mnist", str(target), mirror=mirror)


def test_a_folder_that_cannot_be_made_is_a_world_error(site: Site, target: Path) -> None:
    target.write_bytes(b"a file, not a folder")
    with pytest.raises(EnvironmentFailure, match=r"could not write mnist to .*; make room or choose another folder"):
        download(small_mnist(site), target / "mnist")


def test_other_files_under_published_names_are_refused(site: Site, target: Path) -> None:
    small_mnist(site)
    with pytest.raises(EnvironmentFailure, match="checksum"):
        fetch("mnist", str(target), mirror=site.address)
    assert not target.exists()


def test_embedded_data_needs_no_fetching(target: Path, silent_address: str) -> None:
    assert fetch("digits", str(target), mirror=silent_address) == find_source("digits")
    assert not target.exists()


def test_an_unknown_name_is_refused_with_the_nearest_known_one(target: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        fetch("cifar", str(target))


def test_the_real_mnist_has_the_published_hashes(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source = real_data("mnist")
    if not all((source / file).is_file() for file in REMOTES["mnist"].hashes):
        pytest.skip("needs the real mnist, gzipped; the folder that FEDUL_DATA names has it unpacked")
    for file in REMOTES["mnist"].hashes:
        (site.folder / file).symlink_to(source / file)
    fetch("mnist", str(target), mirror=site.address)
    assert find_source("mnist", str(target)) == target / "mnist"
