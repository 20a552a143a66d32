"""A coordinator with a roster: names are bound to keys, and replies to runs, nodes and rosters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.identity.proof import CHALLENGE, PROOF
from fedul.engines.flower.identity.roster import Roster
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.server.transport import Reply
from fedul.errors import EnvironmentFailure, InputError

from .test_parity import settings
from .wire import Wire, digits_sites

NAMES = ["client-1", "client-2", "client-3"]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", sites=[*NAMES, "stranger"])
    Roster.of_files([tmp_path / "keys" / f"{name}.pub" for name in NAMES]).write(tmp_path / "keys" / "roster.toml")
    return tmp_path / "keys"


@pytest.fixture
def sites(tmp_path: Path, keys: Path) -> dict[int, Path]:
    """Settings of sites with their keys and the roster."""
    made = digits_sites(tmp_path / "sites", 3, rows=300)
    for number, file in made.items():
        set_trust(file, keys, f"client-{number}")
    return made


def set_trust(file: Path, keys: Path, key: str | None, roster: str | None = "roster.toml") -> None:
    """Let a settings file name a key and a roster."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith(("key =", "roster ="))]
    lines = [*([f'roster = "{keys / roster}"'] if roster else []), *lines]
    file.write_text("\n".join([*([f'key = "{keys / f"{key}.key"}"'] if key else []), *lines]) + "\n")


def with_roster(folder: Path, keys: Path, count: int, **changes: Any) -> dict[str, Any]:
    return settings(folder, count, rounds=1, roster=str(keys / "roster.toml"), **changes)


def test_sites_with_the_keys_of_the_roster_take_part(
    tmp_path: Path, keys: Path, sites: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_coordinator(Wire(sites), with_roster(tmp_path, keys, 3))
    assert run.history[0].clients == 3
    assert "roster" not in capsys.readouterr().err


def test_without_a_roster_sites_take_part_and_the_log_says_what_that_means(
    tmp_path: Path, sites: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_coordinator(Wire(sites), settings(tmp_path, 3, rounds=1))
    assert run.history[0].clients == 3
    assert "there is no roster, so any registered key can use the name of any site." in capsys.readouterr().err


def refusals(wire: Wire, given: Mapping[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Run until it fails for lack of sites, and return the log."""
    with pytest.raises(EnvironmentFailure, match="1 of 2 sites connected"):
        run_coordinator(wire, {**given, "start_seconds": 0.5})
    return capsys.readouterr().err


def test_another_key_cannot_use_the_name_of_a_site(
    tmp_path: Path, keys: Path, sites: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    set_trust(sites[2], keys, "stranger", None)  # has the settings of client-2, but not its key
    log = refusals(Wire({1: sites[1], 2: sites[2]}), with_roster(tmp_path, keys, 2), capsys)
    assert (
        "site 'node 2' is refused: it uses the name 'client-2', but the signature is not that of the key that the "
        "roster has for 'client-2'." in log
    )


def test_the_site_itself_takes_part_although_another_key_has_used_its_name(
    tmp_path: Path, keys: Path, sites: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    impostor = tmp_path / "impostor.toml"
    impostor.write_text(sites[1].read_text().replace('state = "state"', 'state = "other"'))
    set_trust(impostor, keys, "stranger", None)
    run = run_coordinator(Wire({1: impostor, 2: sites[1], 3: sites[2]}), with_roster(tmp_path, keys, 2))
    assert run.history[0].clients == 2
    assert "site 'node 1' is refused: it uses the name 'client-1', but" in capsys.readouterr().err


def test_a_site_that_is_not_in_the_roster_is_refused(
    tmp_path: Path, keys: Path, sites: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def renamed(kind: str, _: Message, reply: Message) -> Message:
        return Message({**reply.document, "name": "stranger"}, reply.tensors) if kind == "hello" else reply

    wire = Wire({1: sites[1], 2: sites[2]}, {2: renamed})
    log = refusals(wire, with_roster(tmp_path, keys, 2), capsys)
    assert "site 'node 2' is refused: it uses the name 'stranger', but 'stranger' is not in the roster." in log


@pytest.mark.parametrize(
    ("key", "roster", "reason"),
    [
        (None, None, "but its reply is not signed; set key and roster in its settings"),
        ("client-2", None, "but it holds no roster"),
        ("client-2", "other.toml", "but it holds another roster"),
    ],
)
def test_a_site_without_a_key_or_with_another_roster_is_refused(
    tmp_path: Path,
    keys: Path,
    sites: dict[int, Path],
    capsys: pytest.CaptureFixture[str],
    key: str | None,
    roster: str | None,
    reason: str,
) -> None:
    Roster.of_files([keys / f"{name}.pub" for name in (*NAMES, "stranger")]).write(keys / "other.toml")
    set_trust(sites[2], keys, key, roster)
    log = refusals(Wire({1: sites[1], 2: sites[2]}), with_roster(tmp_path, keys, 2), capsys)
    assert reason in log


class Relay(Wire):
    """A wire on which node 2 has no key, and replies with what node 1 replied to another challenge."""

    def __init__(self, sites: Mapping[int, Path], part: str) -> None:
        super().__init__(sites)
        self.part = part

    def request_one(self, kind: str, node: int, message: Message) -> Reply:
        if node == 2 and kind == self.part:
            challenge = {**message.document[CHALLENGE], "node": "1", "nonce": "0" * 32}
            return super().request_one(kind, 1, Message({**message.document, CHALLENGE: challenge}, message.tensors))
        return super().request_one(kind, node, message)


def test_a_signed_reply_to_another_challenge_is_refused(
    tmp_path: Path, keys: Path, sites: dict[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    log = refusals(Relay({1: sites[1], 2: sites[2]}, "hello"), with_roster(tmp_path, keys, 2), capsys)
    assert "site 'node 2' is refused: it uses the name 'client-1', but the signature is not that of the key" in log


@pytest.mark.parametrize("change", ["rows", "proof"])
def test_a_reply_that_was_changed_on_the_way_is_refused(
    tmp_path: Path, keys: Path, sites: dict[int, Path], capsys: pytest.CaptureFixture[str], change: str
) -> None:
    def changed(kind: str, _: Message, reply: Message) -> Message:
        if kind != "join":
            return reply
        document = dict(reply.document)
        if change == "rows":
            document["rows"] += 1
        else:
            document[PROOF] = {**document[PROOF], "signature": "!"}
        return Message(document, reply.tensors)

    run = run_coordinator(Wire(sites, {2: changed}), with_roster(tmp_path, keys, 3, min_sites=2))
    assert run.history[0].clients == 2
    reason = "the signature is not that of the key" if change == "rows" else "its reply is not signed"
    assert f"site 'client-2' is refused: it uses the name 'client-2', but {reason}" in capsys.readouterr().err


def test_a_damaged_challenge_is_an_unreadable_request(sites: dict[int, Path]) -> None:
    wire = Wire(sites)
    for challenge in ({"run": "r"}, {"run": "r", "node": "1", "nonce": "0" * 300}, 3):
        reply = wire.request_one("hello", 1, Message({"classes": list("0123456789"), CHALLENGE: challenge}))
        assert "the request cannot be read" in str(vars(reply))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"roster": "roster.toml"}, "roster: 'roster.toml' is not an absolute path"),
        ({"roster": "/nowhere/roster.toml"}, "/nowhere/roster.toml: there is no such file"),
        ({"sites": 4}, "sites: 4 is more than the 3 of "),
    ],
)
def test_a_roster_that_cannot_be_used_ends_the_run_before_it_waits(
    tmp_path: Path, keys: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        run_coordinator(Wire({}), {**with_roster(tmp_path, keys, 3), **changes})
    assert not (tmp_path / "run").exists()


def test_a_site_whose_key_cannot_be_used_discloses_nothing(
    keys: Path, sites: dict[int, Path], caplog: pytest.LogCaptureFixture
) -> None:
    (keys / "client-1.key").chmod(0o644)
    reply = Wire(sites).request_one("hello", 1, Message({"classes": list("0123456789")}))
    assert vars(reply)["reason"] == "its settings or its data have an error; see its log"
    assert "other accounts can read this private key" in caplog.text
