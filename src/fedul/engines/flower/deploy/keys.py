"""Test certificates for the coordinator, and keys that identify sites.

In production nginx gets a certificate of an established authority. The certificate of the SuperLink on loopback and the
keys of sites are made here.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedul.engines.flower.settings import is_valid_site_name
from fedul.errors import EnvironmentFailure, InputError

DAYS = 365
LOCAL_HOSTS = ("localhost", "127.0.0.1")
"""Names by which 'flwr' and nginx reach the SuperLink on its machine."""
CERTIFICATES = ("ca.pem", "server.pem", "server.key")


def make_keys(folder: Path, hosts: Sequence[str] = (), sites: Sequence[str] = ()) -> list[Path]:
    """Write a certificate for these hosts, if any, and a key for each of these sites: all files, or none.

    Parameters
    ----------
    folder : Path
        Where to write the files.
    hosts : sequence of str
        Names or addresses of the coordinator.
    sites : sequence of str
        Names of sites.

    Returns
    -------
    list of Path
        The files.
    """
    wanted = [*(CERTIFICATES if hosts else ()), *(name for site in sites for name in _site_files(site))]
    for name in wanted:
        if wanted.count(name) > 1:
            raise InputError(f"{folder / name}: would be written twice; give every site another name.")
        if (folder / name).exists():
            raise InputError(f"{folder / name}: exists; delete it first to make a new one.")
    contents = {
        **(_certificates(hosts) if hosts else {}),
        **{name: c for s in sites for name, c in _site_key(s).items()},
    }
    _write_all(folder, contents)
    return [folder / name for name in contents]


def _certificates(hosts: Sequence[str]) -> dict[str, bytes]:
    alternative = [_host(name) for name in dict.fromkeys([*hosts, *LOCAL_HOSTS])]
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    # Hosts are alternative names only: a common name is limited to 64 characters.
    issuer, subject = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        for name in ("fedul test authority", "fedul coordinator")
    )
    root = _certificate(issuer, issuer, authority, authority, authority=True)
    certificate = _certificate(subject, issuer, server, authority, alternative=alternative)
    return dict(
        zip(
            CERTIFICATES,
            (root.public_bytes(Encoding.PEM), certificate.public_bytes(Encoding.PEM), _private(server, ssh=False)),
            strict=True,
        )
    )


def _site_key(site: str) -> dict[str, bytes]:
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return dict(zip(_site_files(site), (_private(key, ssh=True), public + f" {site}\n".encode()), strict=True))


def _site_files(site: str) -> tuple[str, str]:
    if not is_valid_site_name(site) or site != Path(site).name or site.startswith("."):
        raise InputError(
            f"'{site}' cannot be a file name; use at most 100 characters, without slashes or a leading dot."
        )
    return f"{site}.key", f"{site}.pub"


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    alternative: Sequence[x509.GeneralName] = (),
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    return builder.sign(signer, hashes.SHA384())


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        labels = name.removeprefix("*.").split(".")
        if len(name) > 253 or not all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", label) for label in labels):
            raise InputError(f"host: '{name}' is neither a host name nor an address.") from None
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey, *, ssh: bool) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH if ssh else PrivateFormat.PKCS8, NoEncryption())


def _write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files, or none; keys are readable by their owner only, from their creation on."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            mode = 0o600 if name.endswith(".key") else 0o644
            with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
                written.append(folder / name)
                opened.write(content)
    except OSError as problem:
        for file in written:
            with suppress(OSError):
                file.unlink()
        raise EnvironmentFailure(
            f"cannot write to {folder}: {problem.strerror or problem}; nothing is written."
        ) from None
