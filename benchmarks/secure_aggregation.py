"""Cost of secure aggregation without a network: bytes and seconds of arithmetic, at one site and at the coordinator.

    python benchmarks/secure_aggregation.py [--sites 5 20 200] [--parameters 1000000] [--lost 0.2] [--json]
    python benchmarks/secure_aggregation.py --errors [--seeds 3] [--json]

All sites are simulated one after another in one thread, with identity keys as real sites have them (ECDSA, P-384). Each
signature is verified. Seconds are processor time; those of a site are medians over `TIMED` sites. `--lost` is the share
of the sites that drop out before they send their masked vector. The sum is compared with that of the numbers.

With `--errors`: test error on the digits after ten rounds, with and without secure aggregation, for each algorithm.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from statistics import mean, median
from typing import Any, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384

import fedul
from _measure import IgnoreWarnings, describe_machine, make_parser, print_result
from fedul.privacy.secure_aggregation.codec import Encoded
from fedul.privacy.secure_aggregation.coordinator import AggregationRound
from fedul.privacy.secure_aggregation.layout import Field, VectorLayout
from fedul.privacy.secure_aggregation.messages import RoundTerms
from fedul.privacy.secure_aggregation.neighbours import graph_size
from fedul.privacy.secure_aggregation.site import SecureSite

ALGORITHMS = ("fedavg", "fedprox", "fednova", "scaffold", "fedbn", "fedavgm", "fedadam", "fedyogi")
RANGE, SHARE, MINIMUM = 4.0, 0.7, 3
TIMED = 5
PHASES = ("keys", "shares", "encode", "vector", "signature", "reveal")
ECDSA = ec.ECDSA(SHA384())
T = TypeVar("T")


class Clock:
    """Seconds of processor time by phase, of sites and of the coordinator; other load hardly changes them."""

    def __init__(self) -> None:
        self.site: dict[str, list[float]] = defaultdict(list)
        self.coordinator: Counter[str] = Counter()

    def at_site(self, phase: str, action: Callable[[], T]) -> T:
        started = time.thread_time()
        result = action()
        self.site[phase].append(time.thread_time() - started)
        return result

    def at_coordinator(self, phase: str, action: Callable[[], T]) -> T:
        started = time.thread_time()
        result = action()
        self.coordinator[phase] += time.thread_time() - started
        return result


def measure(count: int, parameters: int, lost: float) -> dict[str, Any]:
    """Return the cost of one round with this number of sites."""
    names = [f"site-{number:04}" for number in range(count)]
    private = {name: ec.generate_private_key(ec.SECP384R1()) for name in names}
    roster = {name: key.public_key() for name, key in private.items()}

    known: dict[tuple[str, bytes, bytes], bool] = {}

    def verify(name: str, statement: bytes, signature: bytes) -> bool:
        try:
            roster[name].verify(signature, statement, ECDSA)
        except InvalidSignature:
            return False
        return True

    def verify_once(name: str, statement: bytes, signature: bytes) -> bool:
        asked = name, statement, signature
        if asked not in known:
            known[asked] = verify(*asked)
        return known[asked]

    def signer(name: str) -> Callable[[bytes], bytes]:
        return lambda statement: private[name].sign(statement, ECDSA)

    layout = VectorLayout((Field("delta", parameters, RANGE, RANGE * count, 32),), count)
    terms = RoundTerms("benchmark", "train", 1, 1, SHARE, MINIMUM, layout.digest)
    # Sites that are not timed share the results of verification.
    sites = {
        name: SecureSite(name, "benchmark", signer(name), verify if name in names[-TIMED:] else verify_once)
        for name in names
    }
    attempt = AggregationRound(terms, count, layout, b"", verify)
    clock, up, down = Clock(), Counter[str](), Counter[str]()  # bytes of one site

    def sent(counter: Counter[str], phase: str, message: Encoded, some: str) -> None:
        if some == names[-1]:
            counter[phase] += len(message.to_bytes())

    for name in names:
        keys = clock.at_site("keys", lambda: sites[name].advertise(terms))  # noqa: B023
        sent(down, "keys", terms, name)
        sent(up, "keys", keys, name)
        clock.at_coordinator("keys", lambda: attempt.add_keys(keys))  # noqa: B023
    request = clock.at_coordinator("keys", attempt.key_list)
    for name in names:
        shares = clock.at_site("shares", lambda: sites[name].share(request))  # noqa: B023
        sent(down, "shares", request, name)
        sent(up, "shares", shares, name)
        clock.at_coordinator("shares", lambda: attempt.add_shares(shares))  # noqa: B023
    masks = clock.at_coordinator("shares", attempt.mask_requests)
    total, survivors = np.zeros(parameters), names[int(lost * count) :]
    for number, name in enumerate(survivors):
        values = np.random.default_rng(number).normal(scale=0.1, size=parameters)
        total += values
        encoded = clock.at_site("encode", lambda: layout.encode({"delta": values}).words)  # noqa: B023
        vector = clock.at_site("vector", lambda: sites[name].mask(masks[name], encoded, b""))  # noqa: B023
        sent(down, "vector", masks[name], name)
        sent(up, "vector", vector, name)
        clock.at_coordinator("vector", lambda: attempt.add_vector(vector))  # noqa: B023
    listed = attempt.survivor_request()
    for name in survivors if listed is not None else ():
        signature = clock.at_site("signature", lambda: sites[name].agree(listed))  # noqa: B023
        sent(down, "signature", listed, name)
        sent(up, "signature", signature, name)
        clock.at_coordinator("signature", lambda: attempt.add_signature(signature))  # noqa: B023
    unmask = clock.at_coordinator("signature", attempt.unmask_request)
    for name in survivors:
        revealed = clock.at_site("reveal", lambda: sites[name].reveal(unmask))  # noqa: B023
        sent(down, "reveal", unmask, name)
        sent(up, "reveal", revealed, name)
        clock.at_coordinator("reveal", lambda: attempt.add_revealed(revealed))  # noqa: B023
    sums, included = clock.at_coordinator("unmask", attempt.sums)
    error = np.abs(layout.decode(sums)["delta"] - total).max()
    assert list(included) == survivors
    size, plain = graph_size(count, attempt.threshold), 4 * parameters
    seconds = {phase: round(median(clock.site[phase][-TIMED:]), 5) for phase in PHASES if phase in clock.site}
    return {
        "sites": count,
        "lost": count - len(survivors),
        "neighbours": size.neighbours,
        "threshold": size.threshold,
        "site_seconds": seconds,
        "site_seconds_total": round(sum(seconds.values()), 4),
        "coordinator_seconds": {phase: round(value, 4) for phase, value in clock.coordinator.items()},
        "coordinator_seconds_total": round(sum(clock.coordinator.values()), 3),
        "bytes_up": {phase: up[phase] for phase in PHASES if phase in up},
        "bytes_down": {phase: down[phase] for phase in PHASES if phase in down},
        "ratio_up": round(sum(up.values()) / plain, 4),
        "ratio_both": round((sum(up.values()) + sum(down.values()) + plain) / (2 * plain), 4),
        "error_in_steps": round(float(error) / layout.step(layout.fields[0]), 2),
    }


def cost_rows(results: list[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table of costs."""
    header = ["sites", "lost", "k", "t", *(f"{phase} ms" for phase in PHASES), "site s", "coordinator s"]
    rows = [[*header, "bytes up / plain", "both / plain", "error (steps)"]]
    for each in results:
        seconds = [f"{1000 * each['site_seconds'].get(phase, 0):.1f}" for phase in PHASES]
        counts = [str(each[key]) for key in ("sites", "lost", "neighbours", "threshold")]
        sums = [f"{each['site_seconds_total']:.2f}", f"{each['coordinator_seconds_total']:.2f}"]
        rows.append(
            [*counts, *seconds, *sums, f"{each['ratio_up']}", f"{each['ratio_both']}", f"{each['error_in_steps']}"]
        )
    return rows


def measure_errors(name: str, seeds: int) -> dict[str, Any]:
    """Return the test errors of one algorithm after ten rounds, with and without secure aggregation."""
    study = fedul.load("digits", clients=5, sets=10)
    settings: dict[str, Any] = {"algorithm": name, "method": "fedul", "rounds": 10, "select": "last", "threads": 1}
    model = fedul_network if name == "fedbn" else None
    errors = {
        label: [
            fedul.train(
                study, seed=seed, secure_aggregation=on, model=model, callbacks=[IgnoreWarnings()], **settings
            ).test_error
            for seed in range(seeds)
        ]
        for label, on in (("plain", False), ("secure", True))
    }
    return {"algorithm": name, **errors}


def fedul_network(shape: tuple[int, ...], classes: int) -> Any:
    """Return a network with batch norm, which is what fedbn is for."""
    from torch import nn

    inputs = int(np.prod(shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, classes))


def error_rows(results: list[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table of errors, in percent."""
    rows = [["algorithm", "plain", "secure", "difference (points)"]]
    for each in results:
        plain, secure = mean(each["plain"]), mean(each["secure"])
        rows.append([each["algorithm"], f"{plain:.2%}", f"{secure:.2%}", f"{100 * (secure - plain):+.2f}"])
    return rows


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 20, 200])
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--lost", type=float, nargs="+", default=[0.0, 0.2])
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.errors:
        results = [measure_errors(name, options.seeds) for name in ALGORITHMS]
        rows = error_rows(results)
    else:
        results = [measure(count, options.parameters, lost) for count in options.sites for lost in options.lost]
        rows = cost_rows(results)
    print_result({"results": results, "machine": describe_machine()}, rows, as_json=options.json)


if __name__ == "__main__":
    main()
