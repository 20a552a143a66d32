"""Identity keys of sites: reading, signing and verifying.

A site has one key: the ECDSA key (P-384) with which Flower's SuperNode authenticates it. Flower reads elliptic-curve
keys of NIST in OpenSSH's format and nothing else, so an Ed25519 key would be a second one for every operator to make,
send and protect. ECDSA needs a good random number for every signature; OpenSSL takes it from the operating system.

The two uses of the key cannot be confused. Flower signs a time in ISO format, with SHA-256. Here a signature is over
`DOMAIN`, the length of the context, the context and the payload, with SHA-384. No time begins with `DOMAIN`, and the
length makes (context, payload) unambiguous, so that a signature for one purpose is worth nothing for another.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedul.errors import FedulError, InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey

DOMAIN = b"fedul identity 1\0"
"""Start of everything that is signed with an identity key."""
KEY_TYPE = "ecdsa-sha2-nistp384"
MAX_FILE_BYTES = 2**20
MAKE_KEY = "make one with 'fedul federation keys DIR --site NAME'"


class IdentityError(FedulError, ValueError):
    """A signature that is missing, or not that of the site whose name it has."""


@dataclass(frozen=True)
class PublicKey:
    """Public identity key of a site.

    Parameters
    ----------
    text : str
        Type and content in OpenSSH's format, without a comment; equal keys have equal texts.
    """

    text: str

    @classmethod
    def parse(cls, line: str, where: str) -> PublicKey:
        """Read the content of a `.pub` file; `where` names it in errors.

        Raises
        ------
        InputError
            If it is damaged, or no ECDSA key on P-384.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key

        words = line.split()
        if words and words[0] != KEY_TYPE and words[0].startswith(("ssh-", "ecdsa-", "sk-")):
            raise InputError(f"{where}: is a key of type {words[0][:40]}, not {KEY_TYPE}; {MAKE_KEY}.")
        try:
            key = load_ssh_public_key(" ".join(words[:2]).encode())
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
            raise InputError(f"{where}: damaged, or no public key ({KEY_TYPE} ...); let its site send it again.")
        return cls(_public_text(key))

    @property
    def fingerprint(self) -> str:
        """Fingerprint as `ssh-keygen -l` shows it, to compare by telephone."""
        return fingerprint(base64.b64decode(self.text.split()[1]))

    def is_signature(self, context: str, payload: bytes, signature: bytes) -> bool:
        """Return whether a signature is that of this key over a payload in a context."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key

        key = load_ssh_public_key(self.text.encode())
        assert isinstance(key, EllipticCurvePublicKey)
        try:
            key.verify(signature, _signed_bytes(context, payload), _scheme())
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, eq=False)
class IdentityKey:
    """Private identity key of a site.

    Parameters
    ----------
    public : PublicKey
        The public key of the pair.
    """

    public: PublicKey
    _private: EllipticCurvePrivateKey

    @classmethod
    def read(cls, path: str | Path) -> IdentityKey:
        """Read a private key file that `fedul federation keys` or `ssh-keygen -t ecdsa -b 384` made.

        Raises
        ------
        InputError
            If the file is missing or damaged, has a passphrase or another kind of key, or others can read it.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key

        content = _read_private(Path(path))
        try:
            key = load_ssh_private_key(content, None)
        except TypeError:
            raise InputError(f"{path}: has a passphrase, for which Flower cannot ask; {MAKE_KEY}.") from None
        except (ValueError, UnsupportedAlgorithm):
            raise InputError(f"{path}: damaged, or no private key in OpenSSH's format; {MAKE_KEY}.") from None
        if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP384R1):
            raise InputError(f"{path}: is another kind of key than {KEY_TYPE}; {MAKE_KEY}.")
        return cls(PublicKey(_public_text(key.public_key())), key)

    def sign(self, context: str, payload: bytes) -> bytes:
        """Return the signature over a payload.

        Parameters
        ----------
        context : str
            Purpose of the signature; a signature for one context is not valid in another.
        payload : bytes
            What is signed.

        Returns
        -------
        bytes
            About 104 bytes (DER). Two signatures of the same payload differ.
        """
        return self._private.sign(_signed_bytes(context, payload), _scheme())


def fingerprint(content: bytes) -> str:
    """Return the SHA-256 of some bytes as OpenSSH writes it.

    >>> fingerprint(b"")
    'SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU'
    """
    return "SHA256:" + base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _signed_bytes(context: str, payload: bytes) -> bytes:
    name = context.encode()
    return DOMAIN + len(name).to_bytes(4, "big") + name + payload


def _scheme() -> ECDSA:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA384

    return ECDSA(SHA384())


def _public_text(key: EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _read_private(file: Path) -> bytes:
    """Return the content of a file that only its owner can read."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if hasattr(os, "geteuid") and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077):
                raise InputError(
                    f"{file}: other accounts can read this private key; give it to this account, with mode 600."
                )
            return opened.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file; {MAKE_KEY}.") from None
    except OSError as problem:
        raise InputError(
            f"{file}: cannot be read ({problem.strerror or problem}); let the site's account read it."
        ) from None
