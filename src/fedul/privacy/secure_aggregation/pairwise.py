"""What two sites derive from each other's keys, and the neighbour graph that a list of keys decides."""

from __future__ import annotations

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedul.privacy.secure_aggregation.messages import KeyList, digest
from fedul.privacy.secure_aggregation.neighbours import Neighbourhoods
from fedul.privacy.secure_aggregation.primitives import agree


@lru_cache(maxsize=4)
def _neighbourhoods(sites: tuple[str, ...], threshold: int, digest: bytes) -> Neighbourhoods:
    return Neighbourhoods.of(sites, threshold, digest)


def neighbourhoods(key_list: KeyList) -> Neighbourhoods:
    """Return the neighbour graph that a list of keys decides."""
    return _neighbourhoods(key_list.sites, key_list.terms.threshold(len(key_list.keys)), key_list.digest)


def pair_seed(secret: X25519PrivateKey, public: bytes, context: bytes, one: str, other: str) -> bytes:
    """Return the seed of the mask that two sites share (s_uv).

    Parameters
    ----------
    secret : X25519PrivateKey
        Mask key of the one site.
    public : bytes
        Public mask key of the other.
    context : bytes
        Result of `transcript`. Sites that received different weights derive different seeds.
    one, other : str
        Their names.
    """
    first, second = sorted((one, other))
    return agree(secret, public, digest("pairwise mask", context, first.encode(), second.encode()))


def share_context(key_list: KeyList, maker: str, holder: str) -> bytes:
    """Return what the encryption of a share depends on: the keys of all sites, and who made it for whom."""
    return digest("encrypted share", key_list.digest, maker.encode(), holder.encode())
