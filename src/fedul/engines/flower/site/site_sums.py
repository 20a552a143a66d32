"""A site in the secure sums of a run: its secrets between messages, and which sums it takes part in.

The protocol (`fedul.privacy.secure_aggregation.site`) makes sure that one aggregation reveals one sum over enough
sites. This module makes sure that several aggregations of the same thing do not disclose their difference
(`secure.cohorts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedul._utils.display import counted
from fedul._utils.documents import Document, read_document_file, to_document
from fedul._utils.files import write_bytes, write_json
from fedul.engines.flower.protocol.documents import SumsReply
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.secure import blobs
from fedul.engines.flower.secure.cohorts import smallest_part
from fedul.engines.flower.secure.identity import CONTEXT, aggregation_run, verifies
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.site_data import SiteData, log_warning
from fedul.privacy.secure_aggregation.codec import Encoded
from fedul.privacy.secure_aggregation.layout import VectorLayout
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.messages import (
    KeyList,
    MaskedVector,
    MaskRequest,
    RoundTerms,
    SurvivorRequest,
    UnmaskRequest,
)
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites
from fedul.privacy.secure_aggregation.site import SecureSite, SitePolicy
from fedul.privacy.secure_aggregation.site_state import SiteState

LEDGER, SECRETS = "sums.json", "sums.bin"


@dataclass(frozen=True)
class SumsLedger(Document):
    """Which sums a site has masked and revealed; the document `sums.json` in the state folder.

    Parameters
    ----------
    topics : mapping of str to str
        What is summed, by the digest of the terms of an aggregation.
    requests : mapping of str to str
        By topic, the digest of the request that the site has answered. Another one is refused.
    revealed : mapping of str to tuple
        By topic, the sets of sites whose sums were revealed.
    """

    topics: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    revealed: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SumsParts:
    """Replies to the parts of a message, and the refusals.

    Parameters
    ----------
    parts : dict of str to dict
        Replies by group of tensors and purpose.
    refusals : dict of str to str
        Why other parts have no reply, by "group/purpose" of the request.
    """

    parts: dict[str, dict[str, Encoded]] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def to_message(self) -> Message:
        """Return the replies as one message."""
        groups = {group: blobs.to_blobs(messages) for group, messages in self.parts.items()}
        return Message.of(SumsReply(self.refusals), **groups)


class SiteSums:
    """The secure sums of one site in one run.

    Parameters
    ----------
    data : SiteData
        The site.
    run : str
        Identifier of the run.
    resumption : int
        How often the run has been resumed; the aggregations of a resumed run are new ones.

    Attributes
    ----------
    most_sites : int
        Sites of the roster.
    """

    def __init__(self, data: SiteData, run: str, resumption: int) -> None:
        identity = data.identity
        if identity is None or identity.roster is None:
            raise PublicError("secure aggregation needs the key of this site and the roster in its settings")
        with data.explain_state_errors():
            folder = data.run_folder(run)
        roster, sign = identity.roster, identity.sign

        self._data = data
        self.most_sites = len(roster.keys)
        self._ledger_file, self._secrets_file = folder / LEDGER, folder / f"{resumption}-{SECRETS}"
        self._ledger = read_document_file(SumsLedger, self._ledger_file, "the site") or SumsLedger()
        self._minimum = data.config.min_cohort
        self._site = SecureSite(
            identity.name,
            aggregation_run(run, resumption),
            lambda statement: sign(CONTEXT, statement),
            lambda name, statement, signature: verifies(roster, name, statement, signature),
            SitePolicy(minimum=self._minimum),
            _read_secrets(self._secrets_file),
        )

    def answer(self, message: Message) -> SumsParts:
        """Reply to the parts of a message that need no data: new keys, shares, signatures, and revealed shares.

        What is asked of one aggregation does not depend on another, so a refusal is reported beside the other replies.
        """
        site, reply = self._site, SumsParts()
        steps: Sequence[tuple[str, str, type[Any], Callable[[Any], Encoded]]] = (
            (blobs.SURVIVORS, blobs.SIGNATURES, SurvivorRequest, self._agree),
            (blobs.UNMASK, blobs.REVEALED, UnmaskRequest, self._reveal),
            (blobs.KEY_LIST, blobs.SHARES, KeyList, site.share),
            (blobs.ADVERTISE, blobs.KEYS, RoundTerms, site.advertise),
        )
        for requested, replied, kind, step in steps:
            for purpose, content in blobs.blobs_in(message, requested).items():
                try:
                    reply.parts.setdefault(replied, {})[purpose] = step(kind.from_bytes(content))
                except (Refusal, TooFewSites, PublicError) as problem:
                    log_warning(f"{requested} of '{purpose[:40]}' is refused: {problem}")
                    reply.refusals[f"{requested}/{purpose}"] = public_sentence(problem)
        self._store()
        return reply

    def masks(self, message: Message) -> Sequence[str]:
        """Return the purposes for which a message asks for a masked vector."""
        return sorted(message.group(blobs.MASK))

    def mask(
        self, message: Message, kind: str, purpose: str, topic: str, layout: VectorLayout, words: Words
    ) -> MaskedVector:
        """Return the masked vector of this site.

        Parameters
        ----------
        message : Message
            The request.
        kind : str
            Its kind.
        purpose : str
            Purpose of the aggregation.
        topic : str
            What is summed: sums of the same topic are compared with each other.
        layout : VectorLayout
            The layout that follows from the settings of the run; terms with another one are refused.
        words : Words
            The vector.
        """
        try:
            request = MaskRequest.from_bytes(blobs.blobs_in(message, blobs.MASK)[purpose])
            secrets = self._site.state.find(request.terms)
            if secrets.terms.purpose != purpose or secrets.terms.layout != layout.digest:
                raise PublicError("the coordinator declared another form of the sums than this site has")
            received = blobs.received_digest(kind, message)
            vector = self._site.mask(request, words, received)
        except KeyError:
            raise PublicError("it takes part in secure sums only, and the message asks for none") from None
        except (Refusal, TooFewSites) as problem:
            raise PublicError(public_sentence(problem)) from None
        known = {each for each in self._ledger.topics if each in self._site.state.secrets}
        topics = {digest: self._ledger.topics[digest] for digest in known} | {request.terms.hex(): topic}
        self._ledger = replace(self._ledger, topics=topics)
        self._store()
        return vector

    def answer_once(self, topic: str, digest: str) -> None:
        """Refuse another request about a topic than the first."""
        if self._ledger.requests.get(topic, digest) != digest:
            raise PublicError(f"it has answered another request for {topic} in this run")
        self._ledger = replace(self._ledger, requests={**self._ledger.requests, topic: digest})

    def _agree(self, request: SurvivorRequest) -> Encoded:
        self._check_parts(request.terms, request.sites)
        return self._site.agree(request)

    def _reveal(self, request: UnmaskRequest) -> Encoded:
        topic = self._check_parts(request.terms, request.sites)
        revealed = self._site.reveal(request)
        before = self._ledger.revealed.get(topic, ())
        sets = before if request.sites in before else (*before, request.sites)
        self._ledger = replace(self._ledger, revealed={**self._ledger.revealed, topic: sets})
        return revealed

    def _check_parts(self, terms: bytes, sites: tuple[str, ...]) -> str:
        """Refuse a sum whose difference from an earlier one is over too few sites; return its topic."""
        topic = self._ledger.topics.get(terms.hex(), "")
        before = self._ledger.revealed.get(topic, ())
        if (size := smallest_part([*before, sites])) < self._minimum:
            raise PublicError(
                f"with an earlier sum, this one would disclose that of {counted(size, 'site')}; at least "
                f"{self._minimum} are needed"
            )
        return topic

    def _store(self) -> None:
        """Store everything before a reply leaves, so that a restarted site does not answer twice."""
        with self._data.explain_state_errors():
            write_bytes(self._secrets_file, self._site.state.to_bytes())
            write_json(self._ledger_file, to_document(self._ledger))


def public_sentence(problem: Exception) -> str:
    """Return what the coordinator receives about a refusal."""
    return str(problem).rstrip(".")


def _read_secrets(file: Path) -> SiteState:
    if not file.exists():
        return SiteState()
    try:
        return SiteState.from_bytes(file.read_bytes())
    except Refusal:
        log_warning(f"{file} is damaged; the site takes part in sums again with its next keys.")
        return SiteState()
