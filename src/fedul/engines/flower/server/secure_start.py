"""Start of a run with secure aggregation: the sites agree on a spec, and only sums over them are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedul.core import Matrix, Scaling
from fedul.data.files.schema.infer import infer_schema
from fedul.data.files.signature import DataSignature, common_signature
from fedul.engines.flower.identity.roster import Roster
from fedul.engines.flower.protocol.documents import StatisticsRequest
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.protocol.run_spec import RunSpec, choose_form
from fedul.engines.flower.secure.contributions import NUMBERS, STATISTICS
from fedul.engines.flower.secure.exact_sums import decode_exact
from fedul.engines.flower.secure.statistics import (
    SiteTotals,
    Words,
    from_numbers,
    parse_words,
    statistics_layout,
    without_words,
)
from fedul.engines.flower.server.secure_sums import SecureSums
from fedul.engines.flower.server.site_registry import SiteRegistry
from fedul.errors import EnvironmentFailure
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites


def start_sums(registry: SiteRegistry, roster: Roster) -> SecureSums:
    """Return the secure sums of a run."""
    config = registry.config
    return SecureSums(
        lambda kind, messages: registry.send(kind, messages, config.round_seconds),
        lambda: registry.admit(config.min_sites, config.round_seconds) if registry.sites else None,
        registry.run,
        registry.resumption,
        roster,
        share=registry.training.aggregation_threshold,
        minimum=config.min_sites,
        attempts=config.attempts,
    )


def agree_securely(
    registry: SiteRegistry, sums: SecureSums, test_prior: Matrix | None, class_mix: Matrix | None
) -> SiteTotals:
    """Wait for the sites, give the registry the spec that fits their data, and return totals over them.

    Parameters
    ----------
    registry : SiteRegistry
        The sites.
    sums : SecureSums
        The sums of the run.
    test_prior : ndarray of shape (K,) or None
        Test prior; None stands for the class mix of all training rows.
    class_mix : ndarray of shape (K,) or None
        Class mix of all rows, if it is given.
    """
    config = registry.config
    words = parse_words(config.words or "")
    forms = registry.wait_for_forms()
    reference, mismatches = choose_form(forms)
    fitting = {name: form for name, form in forms.items() if name not in mismatches}
    totals = _sum_statistics(registry, sums, tuple(reference.columns), fitting, words)
    prior = totals.class_mix if test_prior is None else test_prior
    spec, warnings = _spec(registry, fitting, reference, totals, words, prior)
    registry.spec = replace(spec, class_mix=class_mix, site_adjustment=config.site_adjustment)
    registry.expected = len(fitting)
    for message in warnings:
        registry.callback.on_warning(message)
    return totals


def _sum_statistics(
    registry: SiteRegistry,
    sums: SecureSums,
    columns: tuple[str, ...],
    forms: Mapping[str, DataSignature],
    words: Words,
) -> SiteTotals:
    """Return the totals over the sites that fit together."""
    classes = registry.config.classes
    listed = {name: tuple(each) for name, each in words.items() if name in columns}
    layout = statistics_layout(len(classes), columns, listed, sums.most_sites)
    sums.declare(STATISTICS, layout)
    request = StatisticsRequest(registry.run, registry.resumption, classes, columns, listed)
    messages = dict.fromkeys(forms, Message.of(request))
    for _ in range(registry.config.attempts):
        try:
            sums.ensure({STATISTICS: sorted(messages)})
            found = sums.collect("statistics", messages, {STATISTICS: STATISTICS})[STATISTICS]
        except (TooFewSites, Refusal) as caught:
            problem = str(caught).rstrip(".")
            continue
        numbers = decode_exact(layout.decode(found.words)[NUMBERS])
        return from_numbers(numbers, len(classes), columns, listed)
    reasons = "; ".join(f"{name}: {why}" for name, why in sorted(sums.errors.items())) or "no site replied"
    raise EnvironmentFailure(f"there is no sum of statistics over the sites: {problem} ({reasons}).")


def _spec(
    registry: SiteRegistry,
    forms: Mapping[str, DataSignature],
    reference: DataSignature,
    totals: SiteTotals,
    words: Words,
    prior: Matrix,
) -> tuple[RunSpec, list[str]]:
    """Return the spec, and warnings about columns."""
    classes = registry.config.classes
    if reference.kind != "table":
        common = common_signature(forms, classes)
        signature = replace(reference, shape=common.shape)
        return RunSpec(classes, prior, common.shape, common.scaling, common.schema, signature=signature), []
    columns, left_out = without_words(totals.columns, words)
    schema, warnings = infer_schema(columns, classes)
    return RunSpec(classes, prior, schema.shape, Scaling(), schema, signature=reference), [*left_out, *warnings]
