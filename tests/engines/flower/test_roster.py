"""Identity keys and rosters: signatures, fingerprints, and files that are refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.identity.keys import IdentityError, IdentityKey
from fedul.engines.flower.identity.roster import Roster, SiteIdentity
from fedul.engines.flower.settings import SiteConfig
from fedul.errors import InputError

SITES = ["north", "south", 'say "hé" \\']


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", sites=SITES)
    return tmp_path / "keys"


@pytest.fixture
def roster(tmp_path: Path, keys: Path) -> Path:
    Roster.of_files([keys / f"{site}.pub" for site in SITES]).write(tmp_path / "roster.toml")
    return tmp_path / "roster.toml"


def private_file(file: Path, key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> None:
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))


def public_line(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def test_a_signature_is_valid_for_its_site_context_and_payload_only(keys: Path, roster: Path) -> None:
    read = Roster.read(roster)
    signature = IdentityKey.read(keys / "north.key").sign("keys", b"payload")
    read.verify("north", "keys", b"payload", signature)
    for name, context, payload, claimed, problem in (
        ("south", "keys", b"payload", signature, "not that of the key that the roster has for 'south'"),
        ("north", "reply", b"payload", signature, "not that of the key"),
        ("north", "key", b"spayload", signature, "not that of the key"),  # the same bytes, were they joined
        ("north", "keys", b"payload.", signature, "not that of the key"),
        ("north", "keys", b"payload", signature[:-1], "not that of the key"),
        ("north", "keys", b"payload", b"", "not that of the key"),
        ("west", "keys", b"payload", signature, "'west' is not in the roster"),
    ):
        with pytest.raises(IdentityError, match=problem):
            read.verify(name, context, payload, claimed)


def test_what_flower_signs_with_the_key_is_no_signature_of_fedul(keys: Path, roster: Path) -> None:
    from flwr.supercore.primitives.asymmetric import sign_message

    key = IdentityKey.read(keys / "north.key")
    for message in (b"2026-01-01T00:00:00+00:00", b"payload"):
        with pytest.raises(IdentityError):
            Roster.read(roster).verify("north", "keys", message, sign_message(key._private, message))


def test_a_roster_is_the_same_after_writing_and_reading(keys: Path, roster: Path) -> None:
    made, read = Roster.of_files([keys / f"{site}.pub" for site in reversed(SITES)]), Roster.read(roster)
    assert read.keys == made.keys
    assert read.fingerprint == made.fingerprint
    assert read.names == sorted(SITES)


def test_the_fingerprint_of_a_roster_depends_on_every_name_and_key(keys: Path, roster: Path) -> None:
    read = Roster.read(roster).keys
    exchanged = {**read, "north": read["south"], "south": read["north"]}
    renamed = {("west" if name == "north" else name): key for name, key in read.items()}
    fewer = {name: key for name, key in read.items() if name != "north"}
    assert len({Roster(each).fingerprint for each in (read, exchanged, renamed, fewer)}) == 4


def openssh_key(file: Path, passphrase: str = "") -> None:
    kind = ("-q", "-t", "ecdsa", "-b", "384", "-C", "me@here")
    subprocess.run(["ssh-keygen", *kind, "-N", passphrase, "-f", str(file)], check=True, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    openssh_key(tmp_path / "east", "secret")
    with pytest.raises(InputError, match="has a passphrase, for which Flower cannot ask"):
        IdentityKey.read(tmp_path / "east")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_fingerprints_are_those_of_openssh_which_may_make_the_keys(tmp_path: Path) -> None:
    openssh_key(tmp_path / "east")
    listed = subprocess.run(["ssh-keygen", "-l", "-f", str(tmp_path / "east.pub")], capture_output=True, check=True)
    key = IdentityKey.read(tmp_path / "east")
    assert Roster.of_files([tmp_path / "east.pub"]).keys == {"east": key.public}
    assert key.public.fingerprint == listed.stdout.decode().split()[1]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda file: file.unlink(), "north.key: there is no such file; make one with 'fedul federation keys"),
        (
            lambda file: file.chmod(0o640),
            "other accounts can read this private key; give it to this account",
        ),
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "damaged, or no private key in OpenSSH's format"),
        (lambda file: file.write_text("secret"), "damaged, or no private key"),
        (lambda file: private_file(file, ec.generate_private_key(ec.SECP256R1())), "is another kind of key than ecdsa"),
        (lambda file: private_file(file, ed25519.Ed25519PrivateKey.generate()), "is another kind of key than ecdsa"),
    ],
)
def test_a_private_key_that_cannot_be_used_is_refused(
    keys: Path, damage: Callable[[Path], object], problem: str
) -> None:
    damage(keys / "north.key")
    with pytest.raises(InputError, match=re.escape(problem)):
        IdentityKey.read(keys / "north.key")


def key_line(roster: Path, site: str) -> str:
    return next(line for line in roster.read_text().splitlines() if line.startswith(f'"{site}"'))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text, north: text.replace("[sites]", "[site]"), "a roster has one part [sites]"),
        (lambda text, north: text.partition("[sites]")[0] + "[sites]\n", "a roster has one part [sites]"),
        (lambda text, north: f"{text}[other]\n", "a roster has one part [sites]"),
        (lambda text, north: text + north + "\n", "not a readable roster (Cannot overwrite a value"),
        (lambda text, north: text + north.replace("north", "west") + "\n", "'north' and 'west' have the same key"),
        (lambda text, north: text.replace('"south"', '"North"'), "'north' and 'North' look alike"),
        (lambda text, north: text.replace('"south"', '" "'), "' ' cannot be a name"),
        (lambda text, north: text.replace(north, '"north" = 3'), "the key of 'north' is not text"),
        (lambda text, north: text.replace(north, north[:-20] + '"'), "'north': damaged, or no public key"),
        (lambda text, north: text.replace(north, '"north" = ""'), "'north': damaged, or no public key"),
        (
            lambda text, north: text.replace(north, f'"north" = "{public_line(ed25519.Ed25519PrivateKey.generate())}"'),
            "'north': is a key of type ssh-ed25519, not ecdsa-sha2-nistp384",
        ),
    ],
)
def test_a_roster_that_cannot_be_used_is_refused(roster: Path, change: Callable[[str, str], str], problem: str) -> None:
    roster.write_text(change(roster.read_text(), key_line(roster, "north")))
    with pytest.raises(InputError, match=re.escape(problem)):
        Roster.read(roster)


def test_a_roster_that_others_can_change_or_that_is_missing_is_refused(roster: Path) -> None:
    roster.chmod(0o664)
    with pytest.raises(InputError, match="other accounts can change this roster"):
        Roster.read(roster)
    roster.unlink()
    with pytest.raises(InputError, match="there is no such file; make it with 'fedul federation roster new'"):
        Roster.read(roster)


def test_the_identity_of_a_site_fits_its_roster(tmp_path: Path, keys: Path, roster: Path) -> None:
    def identity(name: str, key: str | None, rows: Path | None = roster) -> SiteIdentity | None:
        path = key and str(keys / f"{key}.key")
        return SiteIdentity.read(SiteConfig(name=name, key=path, roster=rows and str(rows)))

    north = identity("north", "north")
    assert north is not None
    assert north.roster is not None
    north.roster.verify("north", "keys", b"payload", north.sign("keys", b"payload"))
    assert identity("north", None, None) is None
    for name, key, problem in (
        ("west", "north", "has no site 'west'"),
        ("north", "south", r"has the key SHA256:\S+ for 'north', and \S+south.key is SHA256:"),
        ("north", None, "roster: is of use only with the key of this site"),
    ):
        with pytest.raises(InputError, match=problem):
            identity(name, key)
