"""The sites of a run: which take part, which are refused and why, and the spec that all agree on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fedul._utils.display import counted
from fedul.config import TrainConfig
from fedul.core import Matrix
from fedul.data.files.schema.column_problems import column_problem
from fedul.data.files.signature import DataSignature
from fedul.engines.base import SiteTraffic
from fedul.engines.flower.identity.keys import IdentityError
from fedul.engines.flower.identity.proof import ReplyVerifier
from fedul.engines.flower.protocol.documents import HelloReply, HelloRequest, JoinReply, RunRequest, SumsReply
from fedul.engines.flower.protocol.message import Message, UnreadableMessage, printable
from fedul.engines.flower.protocol.run_plan import RunPlan
from fedul.engines.flower.protocol.run_spec import RunSpec, agree_on_spec
from fedul.engines.flower.server.sites import PendingSite, Site
from fedul.engines.flower.server.transport import NoReply, Reply, Transport
from fedul.engines.flower.settings import CoordinatorConfig, is_valid_site_name
from fedul.errors import EnvironmentFailure
from fedul.training import Callback

D = TypeVar("D")
R = TypeVar("R", bound=RunRequest)

MAX_ROWS = 2**40
RETRY_SECONDS = 1.0
TRIES = 3
"""Requests to a node that does not reply: its machine may be busy, and Flower may lose sight of it for a moment."""


@dataclass(eq=False)
class SiteRegistry:
    """Sites of a run by name; sites that connect later are admitted.

    Parameters
    ----------
    transport : Transport
        Connection to the sites.
    config : CoordinatorConfig
        Sites to wait for, and time limits.
    training : TrainConfig
        How sites train.
    run : str
        Identifier of the run at the sites.
    callback : Callback
        Receives warnings.
    spec : RunSpec or None
        Spec that the sites agreed on; None before `agree`.
    expected : int
        Sites to wait for before the first round.
    sites : dict of str to Site
        Sites that have joined.
    verifier : ReplyVerifier or None
        Verifies the signatures of sites; None without a roster, where any registered key can use any name.
    plan : RunPlan or None
        What the run declares to its sites; None before it is known.
    resumption : int
        How often the run has been resumed.
    """

    transport: Transport
    config: CoordinatorConfig
    training: TrainConfig
    run: str
    callback: Callback
    spec: RunSpec | None = None
    expected: int = 0
    sites: dict[str, Site] = field(default_factory=dict)
    verifier: ReplyVerifier | None = None
    plan: RunPlan | None = None
    resumption: int = 0
    _greeted: set[int] = field(default_factory=set)  # nodes that replied to hello, or failed to
    _failures: Counter[tuple[int, str]] = field(default_factory=Counter)  # missing replies by node and kind of request
    _duplicates: dict[int, str] = field(default_factory=dict)  # nodes that use the name of a connected site
    _refused: dict[str, str] = field(default_factory=dict)  # name -> reason
    _pending: dict[str, PendingSite] = field(default_factory=dict)
    _traffic: dict[str, SiteTraffic] = field(default_factory=dict)  # since `collect_traffic` was called

    def agree(self, test_prior: Matrix, class_mix: Matrix | None = None) -> RunSpec:
        """Wait for the sites and return the spec that fits their data; sites with unusable columns are refused."""
        signatures = self.wait_for_forms()
        spec, mismatches, warnings = agree_on_spec(signatures, self.config.classes, test_prior)
        self.spec = replace(spec, class_mix=class_mix, site_adjustment=self.config.site_adjustment)
        for message in warnings:
            self.callback.on_warning(message)
        self.expected = len(signatures) - len(mismatches)
        return self.spec

    def wait_for_forms(self) -> dict[str, DataSignature]:
        """Wait for the sites, and return the form of the data of those whose columns can be used."""
        self._pending = self._wait_for_sites()
        signatures = {
            name: site.signature for name, site in self._pending.items() if not self._refuse_bad_columns(name, site)
        }
        if not signatures:
            raise EnvironmentFailure("no site has usable data; see why the sites were refused.")
        return signatures

    def admit(self, at_least: int, seconds: float) -> None:
        """Admit the connected sites that fit the spec; wait up to `seconds` until `at_least` sites are present."""
        end = time.monotonic() + seconds
        while True:
            nodes = self.transport.nodes()
            self._pending |= self._greet(self.config.round_seconds, {})
            fitting, self._pending = self._select_fitting(self._pending), {}
            at_least -= self._join(fitting)  # sites that cannot join are not waited for
            if len(self.present) >= at_least or (left := end - time.monotonic()) <= 0:
                return
            self._wait(nodes, left)

    @property
    def present(self) -> dict[str, Site]:
        """Connected sites of the run by name."""
        nodes = self.transport.nodes()
        return {name: site for name, site in sorted(self.sites.items()) if site.node in nodes}

    @property
    def nodes(self) -> dict[str, int]:
        """Node of every site that has sent its name, by this name."""
        return {name: site.node for known in (self._pending, self.sites) for name, site in known.items()}

    @property
    def refused(self) -> Mapping[str, str]:
        """Why sites are refused, by name."""
        return self._refused

    def send(self, kind: str, messages: Mapping[str, Message], seconds: float) -> dict[str, Reply]:
        """Send messages to sites and return the replies by name; `NoReply` for a site that is not connected."""
        connected, known = self.transport.nodes(), self.nodes
        nodes = {name: known[name] for name in messages if known.get(name) in connected}
        replies = self.transport.request(kind, {node: messages[name] for name, node in nodes.items()}, seconds)
        for name, node in nodes.items():
            reply = replies[node]
            took = self.transport.reply_seconds.get(node) if kind == "train" else None
            received = reply.tensor_bytes if isinstance(reply, Message) else 0
            traffic = SiteTraffic(took, messages[name].tensor_bytes, received)
            self._traffic[name] = self._traffic.get(name, SiteTraffic()) + traffic
        return {name: replies[nodes[name]] if name in nodes else NoReply("not connected") for name in messages}

    def collect_traffic(self) -> dict[str, SiteTraffic]:
        """Return the traffic by site since the last call."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    def request(self, kind: type[R], **values: Any) -> R:
        """Return a request about this run."""
        assert self.spec is not None
        assert self.plan is not None
        return kind(self.run, self.spec, self.training, self.plan, self.resumption, **values)

    def _unknown_nodes(self, nodes: set[int]) -> set[int]:
        return nodes - self._greeted - {site.node for site in self.sites.values()}

    def _wait_for_sites(self) -> dict[str, PendingSite]:
        """Wait until as many sites are connected as the configuration requires, and return them by name."""
        pending = self._pending = {}  # known to others while it grows
        config, end = self.config, time.monotonic() + self.config.start_seconds
        while True:
            nodes = self.transport.nodes()
            pending |= self._greet(min(max(end - time.monotonic(), 1.0), config.round_seconds), pending)
            if len(pending) >= config.sites:
                return pending
            connected = ", ".join(sorted(pending)) or "none"
            if (left := end - time.monotonic()) <= 0:
                refused = "".join(f"; {name} was refused: {reason}" for name, reason in self._refused.items())
                raise EnvironmentFailure(
                    f"{len(pending)} of {config.sites} sites connected within {config.start_seconds:g} s "
                    f"({connected}{refused}); start the others, or set sites to a smaller number."
                )
            refused = f"; refused until restarted: {', '.join(sorted(self._refused))}" if self._refused else ""
            self.callback.on_warning(f"waiting for {counted(config.sites, 'site')}; connected: {connected}{refused}.")
            self._wait(nodes, left)

    def _wait(self, nodes: set[int], seconds: float) -> None:
        """Wait until the connected nodes change; only briefly if a request must be repeated."""
        self.transport.wait_for_change(nodes, min(seconds, RETRY_SECONDS) if self._unknown_nodes(nodes) else seconds)

    def _greet(self, seconds: float, known: Mapping[str, PendingSite]) -> dict[str, PendingSite]:
        """Send hello to new nodes and return the sites that replied."""
        nodes = self.transport.nodes()
        self._greeted &= nodes  # a site that was refused may have been repaired when it connects again
        self._failures = Counter({key: count for key, count in self._failures.items() if key[0] in nodes})
        for node in [each for each, name in self._duplicates.items() if self.sites[name].node not in nodes]:
            del self._duplicates[node]
            self._greeted.discard(node)
        pending: dict[str, PendingSite] = {}
        new = {node: f"node {node}" for node in self._unknown_nodes(nodes)}
        self._greeted |= new.keys()
        for node, site in self._request(
            "hello",
            HelloRequest(self.run, self.resumption, self.config.classes, self.training.secure_aggregation),
            new,
            seconds,
            HelloReply,
        ):
            if not is_valid_site_name(site.name):
                self._refuse(f"node {node}", "its name is not valid")
            elif site.name in pending or (site.name in known and known[site.name].node in nodes):
                self._refuse(site.name, "another site has the same name")
            elif site.name in self.sites and self.sites[site.name].node in nodes:
                self._duplicates[node] = site.name  # restarted, before Flower has noticed that the old process is gone
                self.callback.on_warning(
                    f"site '{site.name}' is connected twice; the second is admitted when the first is gone."
                )
            else:
                pending[site.name] = PendingSite(node, site.signature)
        return pending

    def _refuse_bad_columns(self, name: str, site: PendingSite) -> bool:
        """Refuse a site with an unusable column, which would spoil the schema; return whether it has one."""
        for column, stats in site.signature.columns.items():
            if problem := column_problem(stats):
                self._refuse(name, f"column '{column}': {problem}")
                return True
        return False

    def _select_fitting(self, pending: Mapping[str, PendingSite]) -> dict[str, PendingSite]:
        assert self.spec is not None
        fitting = {}
        for name, site in pending.items():
            if name in self._refused and self._refuse_bad_columns(name, site):
                continue
            if problem := self.spec.mismatch(site.signature):
                self._refuse(name, problem)
            else:
                fitting[name] = site
        return fitting

    def _join(self, pending: Mapping[str, PendingSite]) -> int:
        """Let sites prepare their rows and take part; return the number of sites that are refused."""
        names = {site.node: name for name, site in pending.items()}
        for name in pending:
            self._refused.pop(name, None)
        request, seconds = self.request(RunRequest), self.config.start_seconds
        if self.training.secure_aggregation:
            for node, _ in self._request("join", request, names, seconds, SumsReply):
                self._add(Site(0, 0, 0, 0, False, names[node], node))
            return len(pending.keys() & self._refused.keys())
        for node, joined in self._request("join", request, names, seconds, JoinReply):
            name = names[node]
            counts = (joined.rows, joined.held_out_rows, joined.sets, joined.labelled_rows)
            if joined.rows <= 0 or not all(0 <= count < MAX_ROWS for count in counts):
                self._refuse(name, f"its number of rows is not plausible ({joined.rows})")
                continue
            self._add(Site(**vars(joined), name=name, node=node))
        return len(pending.keys() & self._refused.keys())

    def _add(self, site: Site) -> None:
        if site.name in self.sites:
            self.callback.on_warning(f"site '{site.name}' is connected again.")
            self.transport.activity.move(self.sites[site.name].node, site.node)
        self.sites[site.name] = site

    def _request(
        self, kind: str, document: Any, names: Mapping[int, str], seconds: float, reply_type: type[D]
    ) -> Iterator[tuple[int, D]]:
        """Send a request to nodes and yield their replies.

        A site that reports why it cannot take part is refused. A request without a reply is repeated later.
        """
        message = Message.of(document)
        messages = {node: self.verifier.challenge(node, kind, message) if self.verifier else message for node in names}
        for node, reply in self.transport.request(kind, messages, seconds).items():
            if isinstance(reply, Message):
                try:
                    yield node, self._verified(node, kind, names[node], reply).read(reply_type)
                except (UnreadableMessage, IdentityError) as problem:
                    self._refuse(names[node], str(problem))
                continue
            # A site that joins is known by its name; without a signature, a name in an error is only a claim.
            claimed = f"{reply.site} (unverified name; {names[node]})" if self.verifier else reply.site
            name = (kind == "hello" and reply.site and claimed) or names[node]
            self._failures[node, kind] += 1
            if reply.final or self._failures[node, kind] >= TRIES:
                self._refuse(name, reply.reason)
            else:
                self._greeted.discard(node)
                self.callback.on_warning(f"site '{name}' does not reply: {reply.reason}; the request is repeated.")

    def _verified(self, node: int, kind: str, name: str, reply: Message) -> Message:
        """Return a reply whose signature is that of the site of this name; IdentityError if it is not."""
        if self.verifier is None:
            return reply
        if kind == "hello":
            name = str(reply.document.get("name"))
        try:
            return self.verifier.verify(node, kind, name, reply)
        except IdentityError as problem:
            raise IdentityError(f"it uses the name '{printable(name, 100)}', but {printable(problem, 300)}") from None

    def _refuse(self, name: str, reason: str) -> None:
        self._refused[name] = reason.rstrip(".")
        self.callback.on_warning(f"site '{name}' is refused: {self._refused[name]}.")
