"""Replies of a site in secure aggregation: numbers of the site leave it in masked vectors only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedul._utils.display import counted
from fedul._utils.documents import to_document
from fedul.core import Update
from fedul.engines.flower.protocol.documents import (
    HelloReply,
    HelloRequest,
    LocalEvaluation,
    StatisticsRequest,
    SumsRequest,
    TrainRequest,
)
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.secure import blobs
from fedul.engines.flower.secure.contributions import (
    EVALUATE,
    LOCAL,
    NUMBERS,
    STATISTICS,
    TRAIN,
    evaluation_layout,
    local_layout,
    local_values,
    update_layout,
)
from fedul.engines.flower.secure.exact_sums import encode_exact
from fedul.engines.flower.secure.statistics import statistics_layout, to_numbers
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.site_data import SiteData, log_warning
from fedul.engines.flower.site.site_run import SiteRun
from fedul.engines.flower.site.site_sums import SiteSums
from fedul.engines.held_out import HeldOutSums
from fedul.engines.secure_sums import held_out_values
from fedul.privacy.secure_aggregation.layout import Values, VectorLayout
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.problems import NotFinite


@dataclass(frozen=True, eq=False)
class Contribution:
    """What a site adds to one sum.

    Parameters
    ----------
    topic : str
        What is summed; sums of the same topic must not disclose their difference.
    layout : VectorLayout
        Fields of the vector.
    words : Words
        The vector.
    """

    topic: str
    layout: VectorLayout
    words: Words

    @classmethod
    def of(cls, topic: str, layout: VectorLayout, values: Mapping[str, Values]) -> Contribution:
        """Return the contribution with these values by field."""
        return cls(topic, layout, layout.encode(values).words)


def masked_reply(sums: SiteSums, kind: str, message: Message, contributions: Mapping[str, Contribution]) -> Message:
    """Return the masked vectors of a site by purpose, with its replies to the other parts of the request."""
    vectors = {
        purpose: sums.mask(message, kind, purpose, each.topic, each.layout, each.words)
        for purpose, each in contributions.items()
    }
    reply = sums.answer(message)
    reply.parts[blobs.VECTORS] = dict(vectors)
    return reply.to_message()


def masked_update(run: SiteRun, message: Message, update: Update, held_out: HeldOutSums | None) -> Message:
    """Return the update of a round, as `Algorithm.prepare` changes it for the mean, and its held-out sums, masked."""
    assert run.sums is not None
    request, algorithm = message.read(TrainRequest), run.recipe.make_algorithm()
    layout = update_layout(run.module, algorithm, request.training, request.plan, run.sums.most_sites)
    try:
        encoded = layout.encode(algorithm.prepare(message.group("weights"), update))
    except NotFinite as problem:
        raise PublicError(str(problem).rstrip(".")) from None
    if encoded.clipped:
        log_warning(f"{counted(encoded.clipped, 'value')} of the update are beyond aggregation-range and were clipped.")
    contributions = {TRAIN: Contribution(f"round {request.round}", layout.vector, encoded.words)}
    if held_out is not None:
        contributions |= _held_out(run.sums, held_out)
    return masked_reply(run.sums, "train", message, contributions)


def masked_held_out(run: SiteRun, message: Message, held_out: HeldOutSums) -> Message:
    """Return held-out sums, masked."""
    assert run.sums is not None
    return masked_reply(run.sums, "evaluate_held_out", message, _held_out(run.sums, held_out))


def masked_estimate(run: SiteRun, message: Message, estimate: LocalEvaluation) -> Message:
    """Return the site's estimate of the accuracy, masked."""
    assert run.sums is not None
    sites = run.sums.most_sites
    contribution = Contribution.of(LOCAL, local_layout(sites), local_values(estimate, sites))
    return masked_reply(run.sums, "evaluate_locally", message, {LOCAL: contribution})


def _held_out(sums: SiteSums, held_out: HeldOutSums) -> dict[str, Contribution]:
    return {EVALUATE: Contribution.of(EVALUATE, evaluation_layout(sums.most_sites), held_out_values(held_out))}


def greet(data: SiteData, message: Message, request: HelloRequest) -> Message:
    """Return the name of the site and the names of its columns, with keys for the sum of statistics."""
    signature = data.signature()
    form = replace(signature, columns={name: type(stats)() for name, stats in signature.columns.items()})
    keys = SiteSums(data, request.run, request.resumption).answer(message)
    if keys.refusals:
        raise PublicError(next(iter(keys.refusals.values())))
    groups = {group: blobs.to_blobs(messages) for group, messages in keys.parts.items()}
    return Message.of(HelloReply(data.config.name, form), **groups)


def send_statistics(data: SiteData, message: Message) -> Message:
    """Return the statistics of the site's rows, masked."""
    request = message.read(StatisticsRequest)
    if sorted(request.classes) != sorted(data.classes):
        raise PublicError(f"its classes are {', '.join(data.classes)}, not {', '.join(request.classes)}")
    sums = SiteSums(data, request.run, request.resumption)
    columns = data.signature().columns
    if unknown := [name for name in request.columns if name not in columns]:
        raise PublicError(f"it does not offer column '{unknown[0][:80]}'")
    # Other columns or words would be another question about the same rows.
    sums.answer_once(STATISTICS, hashlib.sha256(json.dumps(to_document(request), sort_keys=True).encode()).hexdigest())
    totals = data.totals(request.classes)
    values = {NUMBERS: encode_exact(to_numbers(totals, request.columns, request.words))}
    layout = statistics_layout(len(request.classes), request.columns, request.words, sums.most_sites)
    return masked_reply(sums, "statistics", message, {STATISTICS: Contribution.of(STATISTICS, layout, values)})


def aggregate(data: SiteData, message: Message) -> Message:
    """Return keys, shares, signatures and revealed shares: what needs no data of the site."""
    request = message.read(SumsRequest)
    return SiteSums(data, request.run, request.resumption).answer(message).to_message()
