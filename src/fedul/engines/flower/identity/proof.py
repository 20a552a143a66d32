"""Signed replies: a coordinator with a roster challenges a site, and the site signs its reply with its identity key.

The signature is over the run, the node, a nonce of the coordinator, the kind of request, the name of the site, the
fingerprint of the site's roster and the whole reply. So it is of no use for another run or node, nor later. With the
roster, a site that takes part in two federations cannot be impersonated in one by the coordinator of the other, which
could pass a challenge on: their rosters differ.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedul._utils.documents import read_document, to_document
from fedul.engines.flower.identity.keys import IdentityError
from fedul.engines.flower.identity.roster import Roster, SiteIdentity
from fedul.engines.flower.protocol.message import Message, UnreadableMessage

CONTEXT = "reply"
CHALLENGE, PROOF = "challenge", "proof"
"""Keys in the documents of a request and of its reply."""
MAX_TEXT = 200


@dataclass(frozen=True)
class Challenge:
    """Request for a signed reply.

    Parameters
    ----------
    run : str
        Identifier of the run.
    node : str
        Flower's number of the node that is asked.
    nonce : str
        Random text that the coordinator uses once.
    """

    run: str
    node: str
    nonce: str


@dataclass(frozen=True)
class Proof:
    """Signature of a reply.

    Parameters
    ----------
    roster : str
        Fingerprint of the site's roster; empty without one.
    signature : str
        Signature, in base 64.
    """

    roster: str
    signature: str


def take_challenge(request: Message) -> tuple[Message, Challenge | None]:
    """Return a request without its challenge, and the challenge; UnreadableMessage if that is damaged."""
    document = dict(request.document)
    stored = document.pop(CHALLENGE, None)
    if stored is None:
        return request, None
    challenge = Message({CHALLENGE: stored}).read(_Challenged).challenge
    if any(len(text) > MAX_TEXT for text in vars(challenge).values()):
        raise UnreadableMessage("its challenge is too long")
    return Message(document, request.tensors), challenge


def prove(reply: Message, kind: str, challenge: Challenge, identity: SiteIdentity) -> Message:
    """Return a reply with the signature of the site."""
    roster = identity.roster.fingerprint if identity.roster else ""
    payload = _payload(challenge, kind, identity.name, roster, reply)
    signature = base64.b64encode(identity.sign(CONTEXT, payload)).decode()
    return Message({**reply.document, PROOF: to_document(Proof(roster, signature))}, reply.tensors)


@dataclass(eq=False)
class ReplyVerifier:
    """The coordinator's side: challenges, and the verification of replies.

    Parameters
    ----------
    roster : Roster
        Keys of the sites.
    run : str
        Identifier of the run.
    """

    roster: Roster
    run: str
    _challenges: dict[tuple[int, str], Challenge] = field(default_factory=dict)

    def challenge(self, node: int, kind: str, request: Message) -> Message:
        """Return a request with a new challenge for a node."""
        made = self._challenges[node, kind] = Challenge(self.run, str(node), secrets.token_hex(16))
        return Message({**request.document, CHALLENGE: to_document(made)}, request.tensors)

    def verify(self, node: int, kind: str, name: str, reply: Message) -> Message:
        """Return a reply without its proof.

        Parameters
        ----------
        node : int
            The node that replied; the challenge that it received is used up.
        kind : str
            Kind of the request.
        name : str
            Name that the site must have.
        reply : Message
            Its reply.

        Raises
        ------
        IdentityError
            If the reply is not signed, or not with the key of the site of this name, or the site has another roster.
        """
        challenge = self._challenges.pop((node, kind))
        if name not in self.roster.keys:
            raise IdentityError(f"'{name[:100]}' is not in the roster")
        document = dict(reply.document)
        try:
            proof = read_document(Proof, document.pop(PROOF, None))
            signature = base64.b64decode(proof.signature, validate=True)
        except ValueError:
            raise IdentityError("its reply is not signed; set key and roster in its settings") from None
        unsigned = Message(document, reply.tensors)
        self.roster.verify(name, CONTEXT, _payload(challenge, kind, name, proof.roster, unsigned), signature)
        if proof.roster != self.roster.fingerprint:
            raise IdentityError(f"it holds {'another roster' if proof.roster else 'no roster'}")
        return unsigned


@dataclass(frozen=True)
class _Challenged:
    challenge: Challenge


def _payload(challenge: Challenge, kind: str, name: str, roster: str, reply: Message) -> bytes:
    signed: Mapping[str, Any] = {
        **vars(challenge),
        "kind": kind,
        "name": name,
        "roster": roster,
        "document": dict(reply.document),
        "tensors": hashlib.sha256(reply.serialize().tensors).hexdigest(),
    }
    return json.dumps(signed, sort_keys=True, allow_nan=False).encode()
