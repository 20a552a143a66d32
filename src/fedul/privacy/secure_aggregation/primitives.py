"""Cryptographic primitives of the protocol, all of the package `cryptography`.

X25519 (RFC 7748) and HKDF-SHA256 (RFC 5869) for key agreement (KA), ChaCha20-Poly1305 (RFC 8439) for shares (AE),
ChaCha20 as the generator of masks (PRG), and the operating system's entropy.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedul.privacy.secure_aggregation.problems import Refusal

KEY_BYTES = 32
Sign = Callable[[bytes], bytes]
"""Signs a statement with the identity key of a site."""
Verify = Callable[[str, bytes, bytes], bool]
"""``verify(name, statement, signature)``: whether the identity key of this name in the roster made the signature."""


def fresh_secret() -> bytes:
    """Return 32 bytes of the operating system's entropy."""
    return os.urandom(KEY_BYTES)


def secret_key(secret: bytes) -> X25519PrivateKey:
    """Return an X25519 secret key of 32 bytes. Making it takes as long as using it, so use it several times."""
    return X25519PrivateKey.from_private_bytes(secret)


def public_key(secret: bytes) -> bytes:
    """Return the X25519 public key of a secret key."""
    return secret_key(secret).public_key().public_bytes_raw()


def agree(secret: X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
    """Return the 32-byte key that the owners of two key pairs share for one purpose.

    Parameters
    ----------
    secret : X25519PrivateKey
        Secret key of the one.
    public : bytes
        Public key of the other.
    purpose : bytes
        The info of HKDF: another purpose gives an independent key.
    """
    try:
        shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Refusal("an advertised key is not a valid X25519 key; nothing was sent.") from None
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def encrypt(key: bytes, plain_text: bytes, context: bytes) -> bytes:
    """Return an authenticated encryption. The key must be used once: the nonce is fixed."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), plain_text, context)


def decrypt(key: bytes, cipher_text: bytes, context: bytes) -> bytes:
    """Return what was encrypted; Refusal if it was changed, or was made with another key or context."""
    from cryptography.exceptions import InvalidTag

    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), cipher_text, context)
    except InvalidTag:
        raise Refusal("an encrypted share was changed on its way.") from None
