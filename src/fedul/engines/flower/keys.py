"""Certificates for trying things out, and keys by which sites are known.

A hospital takes the coordinator's certificate from its own authority; the keys of sites are made like this anywhere.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedul.errors import InputError
from fedul.files import write_bytes

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS = 365


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """`ca.pem`, and `server.pem` with `server.key` for these names and addresses, which it has signed.

    The authority's own key is not kept: nobody can sign another certificate in its name.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    _refuse_existing([folder / name for name in ("ca.pem", "server.pem", "server.key")])
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fedul test authority")])
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0])])
    root = _certificate(issuer, issuer, authority, authority, authority=True)
    own = _certificate(subject, issuer, server, authority, alternative=[_host(name) for name in hosts])
    write_bytes(folder / "ca.pem", _pem(root))
    write_bytes(folder / "server.pem", _pem(own))
    _write_secret(folder / "server.key", _private(server, ssh=False))


def make_site_key(folder: Path, site: str) -> None:
    """`SITE.key`, which stays at the site, and `SITE.pub`, which the coordinator registers."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if not site or site != Path(site).name or site.startswith("."):
        raise InputError(f"'{site}' cannot be a file name; name the site without slashes.")
    _refuse_existing([folder / f"{site}.key", folder / f"{site}.pub"])
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_secret(folder / f"{site}.key", _private(key, ssh=True))
    write_bytes(folder / f"{site}.pub", public + f" {site}\n".encode())


def _refuse_existing(files: Sequence[Path]) -> None:
    for file in files:
        if file.exists():
            raise InputError(f"{file}: is there already; delete it first if it is to be made anew.")


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    alternative: Sequence[x509.GeneralName] = (),
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

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
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?", name):
            raise InputError(f"host: '{name}' is neither a name nor an address; give one as it is in URLs.") from None
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private(key: EllipticCurvePrivateKey, *, ssh: bool) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH if ssh else PrivateFormat.PKCS8, NoEncryption())


def _write_secret(file: Path, content: bytes) -> None:
    """Readable by its owner only, from the first moment on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
