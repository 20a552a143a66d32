from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedul.data import SOURCES

from ..runs import contents
from .checks import is_one_sentence
from .command import COMMAND, Fedul, environment


class WrongContent(BaseHTTPRequestHandler):
    """Answers every request with something that is not a data set."""

    def do_GET(self) -> None:
        body = b"not what you wanted"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), WrongContent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_list_names_every_data_set_and_says_which_are_available(fresh_fedul: Fedul) -> None:
    outcome = fresh_fedul("datasets")
    assert (outcome.code, outcome.err) == (0, "")
    assert all(name in outcome.out for name in SOURCES)
    assert "embedded" in outcome.out
    assert "fedul datasets fetch mnist" in outcome.out


def test_the_list_fits_a_terminal_of_80_columns() -> None:
    done = subprocess.run([*COMMAND, "datasets"], env=environment(COLUMNS="80"), text=True, stdout=subprocess.PIPE)
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 40
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in SOURCES)
    assert any(line.startswith("mednist cannot be downloaded: make mednist28.npz") for line in lines)


def test_the_list_can_be_printed_as_json(fedul: Fedul) -> None:
    outcome = fedul("datasets --json")
    assert (outcome.code, outcome.err) == (0, "")
    listed = {row["name"]: row for row in outcome.document["datasets"]}
    assert set(listed) == set(SOURCES)
    assert Path(listed["digits"]["path"]).is_file()
    assert listed["digits"]["rows"] == 5620
    assert listed["mnist"]["path"] is None


def test_an_embedded_data_set_needs_no_download(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("datasets fetch digits --json")
    assert outcome.code == 0
    assert Path(outcome.document["path"]).is_file()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_a_mirror_with_wrong_content_is_refused_and_no_file_is_left(
    fedul: Fedul, tmp_path: Path, mirror: str, name: str
) -> None:
    outcome = fedul(f"datasets fetch {name} --data-dir data --mirror {mirror} --json")
    assert (outcome.code, outcome.out) == (1, "")
    assert is_one_sentence(outcome.err)
    assert "checksum" in outcome.err
    assert contents(tmp_path) == {}


def test_a_mirror_that_does_not_answer_is_an_environment_failure(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("datasets fetch mnist --data-dir data --mirror http://127.0.0.1:9")
    assert (outcome.code, outcome.out) == (1, "")
    assert is_one_sentence(outcome.err)
    assert contents(tmp_path) == {}


def test_an_unknown_data_set_is_refused_with_the_nearest_name(fedul: Fedul) -> None:
    outcome = fedul("datasets fetch minst")
    assert (outcome.code, outcome.out) == (2, "")
    assert is_one_sentence(outcome.err)
    assert "did you mean 'mnist'?" in outcome.err
