"""Sites that fail, send wrong replies or have other data are named and left out; the others continue without them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import fedul
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.held_out import TEMPERATURES
from fedul.errors import EnvironmentFailure, InputError
from fedul.training import RunFolder

from .test_parity import settings, weights
from .wire import ChangingWire, Fault, Wire, digits_sites


def in_training(change: Callable[[Message], Message | None]) -> Fault:
    """A fault in every update."""
    return lambda kind, _, reply: change(reply) if kind == "train" else reply


def with_delta(change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    def changed(reply: Message) -> Message:
        return Message(
            reply.document, {k: change(t) if k.startswith("delta/") else t for k, t in reply.tensors.items()}
        )

    return in_training(changed)


def claiming(**values: Any) -> Fault:
    return in_training(lambda reply: Message({**reply.document, **values}, reply.tensors))


FAULTS = {
    "not a number": (with_delta(lambda t: t * math.nan), "holds values that are not finite"),
    "infinite": (with_delta(lambda t: t + math.inf), "holds values that are not finite"),
    "another shape": (with_delta(lambda t: t.unsqueeze(0)), "has shape"),
    "another type": (with_delta(lambda t: t.double()), "holds float64, not float32"),
    "far too large": (with_delta(lambda t: t * 1e4), "times as large as usual"),
    "oversized": (
        in_training(lambda a: Message(a.document, {**a.tensors, "x": torch.zeros(2**21)})),
        "bytes, more than the limit",
    ),
    "an empty reply": (in_training(lambda _: Message()), "required field missing @ document.rows"),
    "an undeclared tensor": (
        in_training(lambda a: Message(a.document, {**a.tensors, "buffers/x": torch.zeros(1)})),
        "'x' is not a declared buffer",
    ),
    "rows as text": (claiming(rows="many"), "expected int @ document.rows"),
    "rows that are a truth value": (claiming(rows=True), "expected int @ document.rows"),
    "an undeclared field": (claiming(label=1), "extra fields found (label)"),
    "no rows": (claiming(rows=0), "it claims 0 rows and"),
    "negative steps": (claiming(steps=-1.0), "and -1 steps"),
    "far more steps": (claiming(steps=1e308), "and 1e+308 steps, where"),
    "no reply": (in_training(lambda _: None), "no reply within 1 s"),
}


@pytest.fixture(scope="module")
def without_the_fourth(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """Weights after training with three of four sites only."""
    folder = tmp_path_factory.mktemp("three")
    three = {node: path for node, path in digits_sites(folder, 4, rows=400).items() if node != 4}
    return weights(run_coordinator(Wire(three), settings(folder, 3, rounds=1)))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_site_with_an_unusable_update_is_named_and_the_others_continue(
    tmp_path: Path, without_the_fourth: torch.Tensor, fault: str
) -> None:
    change, reason = FAULTS[fault]
    found = run_coordinator(Wire(digits_sites(tmp_path, 4, rows=400), {4: change}), settings(tmp_path, 4, rounds=1))
    assert found.history[0].clients == 3
    assert reason in found.history[0].site_errors["client-4"]
    assert torch.equal(weights(found), without_the_fourth)


def test_a_round_without_enough_updates_is_repeated_and_then_ends_the_run(tmp_path: Path) -> None:
    faults = dict.fromkeys((1, 2, 3), in_training(lambda _: None))
    wire = Wire(digits_sites(tmp_path, 3), faults)
    with pytest.raises(EnvironmentFailure, match=r"0 of 2 required updates arrived in 3 attempts \(client-1: no reply"):
        run_coordinator(wire, settings(tmp_path, 3))
    assert sum(kind == "train" for _, kind in wire.requests) == 9
    assert RunFolder(tmp_path / "run").result() is None
    assert not (tmp_path / "run" / "model").exists()


def test_a_site_that_has_just_failed_does_not_evaluate_the_round(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3), {3: in_training(lambda _: None)})
    run_coordinator(wire, settings(tmp_path, 3, rounds=2))
    assert wire.kinds(3) == ["hello", "join", "train", "train", "evaluate_locally"]


def not_evaluating(kind: str, _: Message, reply: Message) -> Message | None:
    return None if kind == "evaluate_held_out" else reply


def test_a_round_that_no_site_evaluates_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="no site evaluated the round"):
        run_coordinator(
            Wire(digits_sites(tmp_path, 2), {1: not_evaluating, 2: not_evaluating}), settings(tmp_path, 2, rounds=1)
        )


def test_a_site_that_does_not_evaluate_the_last_round_is_named(tmp_path: Path) -> None:
    found = run_coordinator(Wire(digits_sites(tmp_path, 3), {3: not_evaluating}), settings(tmp_path, 3, rounds=2))
    first, last = found.history
    assert (first.site_errors, first.evaluated_by) == ({}, ())
    assert last.clients == 3
    assert last.site_errors == {"client-3": "no reply within 1 s"}
    assert last.evaluated_by == ("client-1", "client-2")


def test_a_site_that_disconnects_before_the_last_evaluation_is_named(tmp_path: Path) -> None:
    class Leaving(Wire):
        def request(self, kind: str, *others: Any) -> Any:
            found = super().request(kind, *others)
            if kind == "train":
                self.settings.pop(3)
            return found

    last = run_coordinator(Leaving(digits_sites(tmp_path, 3)), settings(tmp_path, 3, rounds=1)).history[-1]
    assert last.site_errors == {"client-3": "not connected"}
    assert last.evaluated_by == ("client-1", "client-2")


def hard(missing_round: int) -> Fault:
    """A site whose held-out rows have high losses, and which does not evaluate one of the rounds."""

    def evaluated(kind: str, request: Message, reply: Message) -> Message:
        sums = {"train": reply.document.get("held_out"), "evaluate_held_out": reply.document}.get(kind)
        if not sums:
            return reply
        losses, squares = [9 * v for v in sums["losses"]], [81 * v for v in sums["squared_differences"]]
        reference = 9 * sums["reference_loss"]
        harder = {**sums, "losses": losses, "squared_differences": squares, "reference_loss": reference}
        if kind == "evaluate_held_out":
            return Message(harder)
        left_out = request.document["round"] == missing_round + 1
        return Message({**reply.document, "held_out": None if left_out else harder}, reply.tensors)

    return evaluated


def test_a_round_is_not_selected_because_a_site_with_high_losses_did_not_evaluate_it(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3), {3: hard(missing_round=2)})
    found = run_coordinator(wire, settings(tmp_path, 3, rounds=5))
    figures = [line.held_out_loss for line in found.history]
    assert figures.index(min(figures)) == 1
    assert [bool(line.evaluated_by) for line in found.history] == [False, True, False, False, False]
    everyone = fedul.train(fedul.load("digits", clients=3), method="fedul", rounds=5)
    assert found.selected_round == everyone.selected_round == 5


def test_a_resumed_run_compares_rounds_as_an_uninterrupted_one_does(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3), {3: hard(missing_round=2)})
    whole = run_coordinator(wire, settings(tmp_path / "whole", 3, rounds=5))
    run_coordinator(wire, settings(tmp_path, 3, rounds=4, **{"max-rounds": 5}))
    resumed = run_coordinator(wire, settings(tmp_path, 3, rounds=5, resume=True))
    assert resumed.selected_round == whole.selected_round
    for name in ("held_out_loss", "comparable_loss", "evaluated_by"):
        assert [getattr(line, name) for line in resumed.history] == [getattr(line, name) for line in whole.history]


def test_a_site_that_missed_a_round_continues_from_its_last_accepted_update(tmp_path: Path) -> None:
    def silent_once(kind: str, request: Message, reply: Message) -> Message | None:
        return None if kind == "train" and request.document["round"] == 2 else reply

    found = run_coordinator(
        Wire(digits_sites(tmp_path, 3), {3: silent_once}), settings(tmp_path, 3, rounds=4, algorithm="scaffold")
    )
    assert [line.clients for line in found.history] == [3, 2, 3, 3]
    states = sorted(path.name for path in (tmp_path / "client-3" / "state").rglob("*@*"))
    # Nothing is left of round 2; round 1 belongs to the last checkpoint.
    assert [name.partition("@")[2] for name in states] == ["1.safetensors", "3.safetensors", "4.safetensors"]


def test_a_site_that_restarts_under_another_node_number_is_the_same_site(tmp_path: Path) -> None:
    class Restarting(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            if kind == "train" and 2 in messages and messages[2].document["round"] == 2:
                self.settings[20] = self.settings.pop(2)
                messages = {node: message for node, message in messages.items() if node != 2}
                found = super().request(kind, messages, seconds)
                return {**found, 2: self.request_one("nonsense", 20, Message())}
            return super().request(kind, messages, seconds)

    found = run_coordinator(
        Restarting(digits_sites(tmp_path, 3)), settings(tmp_path, 3, rounds=3, algorithm="scaffold")
    )
    assert [line.clients for line in found.history] == [3, 2, 3]


@pytest.mark.parametrize("kind", ["hello", "join"])
def test_a_request_to_a_site_that_is_slow_at_first_is_repeated(tmp_path: Path, kind: str) -> None:
    missing = iter([None, None])

    def slow(requested: str, _: Message, reply: Message) -> Message | None:
        return next(missing, reply) if requested == kind else reply

    found = run_coordinator(Wire(digits_sites(tmp_path, 2, rows=400), {2: slow}), settings(tmp_path, 2, rounds=1))
    assert found.history[0].clients == 2


@pytest.mark.parametrize("kind", ["hello", "join"])
def test_a_site_that_never_replies_receives_three_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    def silent(requested: str, _: Message, reply: Message) -> Message | None:
        return None if requested == kind else reply

    wire = Wire(digits_sites(tmp_path, 3, rows=400), {3: silent})
    run_coordinator(wire, settings(tmp_path, 2, rounds=4))
    assert wire.kinds(3).count(kind) == 3
    log = capsys.readouterr().err
    assert log.count("does not reply: no reply within 1 s; the request is repeated.") == 2
    assert log.count("is refused: no reply within 1 s.") == 1


def test_a_request_whose_process_was_killed_is_repeated(tmp_path: Path) -> None:
    errors = iter([Message({"error": "its process was killed", "site": "client-2", "retry": True})] * 2)

    def unlucky(kind: str, _: Message, reply: Message) -> Message:
        return next(errors, reply) if kind == "hello" else reply

    found = run_coordinator(Wire(digits_sites(tmp_path, 2, rows=400), {2: unlucky}), settings(tmp_path, 2, rounds=1))
    assert found.history[0].clients == 2


def test_sites_that_do_not_evaluate_the_result_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent: Fault = lambda kind, _, reply: None if kind == "evaluate_locally" else reply  # noqa: E731
    run_coordinator(Wire(digits_sites(tmp_path, 2, rows=400), {1: silent, 2: silent}), settings(tmp_path, 2, rounds=1))
    assert capsys.readouterr().err.count("does not evaluate the classifier: no reply within 1 s.") == 2
    assert "no site answered" in (tmp_path / "run" / "report.html").read_text()


def test_a_second_process_of_a_site_is_named_once_and_admitted_when_the_first_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Doubled(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            found = super().request(kind, messages, seconds)
            if kind == "train":
                number = next(iter(messages.values())).document["round"]
                if number == 1:
                    self.settings[20] = self.settings[2]
                elif number == 3:
                    del self.settings[2]
            return found

    wire = Doubled(digits_sites(tmp_path, 2, rows=400))
    found = run_coordinator(wire, settings(tmp_path, 2, rounds=5))
    assert [line.clients for line in found.history] == [2] * 5
    assert wire.kinds(20)[:4] == ["hello", "hello", "join", "train"]
    assert capsys.readouterr().err.count("site 'client-2' is connected twice") == 1


def test_a_second_site_of_the_same_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sites = digits_sites(tmp_path, 3)
    run_coordinator(Wire({**sites, 4: sites[3]}), settings(tmp_path, 3, rounds=1))
    assert "site 'client-3' is refused: another site has the same name." in capsys.readouterr().err


TABLE = "age,smoker,set\n" + "".join(f"{20 + i % 50},{'yes' if i % 3 else 'no'},{'ab'[i % 2]}\n" for i in range(120))
PRIORS = "set,ill,well\na,0.8,0.2\nb,0.3,0.7\n"


def table_site(folder: Path, name: str, table: str = TABLE, priors: str = PRIORS, **options: Any) -> Path:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "rows.csv").write_text(table)
    (place / "priors.csv").write_text(priors)
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
    (place / "site.toml").write_text(f'name = "{name}"\n{lines}[data]\ndata = "rows.csv"\npriors = "priors.csv"\n')
    return place / "site.toml"


def hospitals(folder: Path, **changed: Any) -> dict[int, Path]:
    """Settings of two sites with the same columns, and of a third that may differ."""
    return {1: table_site(folder, "north"), 2: table_site(folder, "south"), 3: table_site(folder, "west", **changed)}


def two_classes(folder: Path, sites: int = 3, **changed: Any) -> dict[str, Any]:
    return settings(folder, sites, classes="ill,well", rounds=1, **{"start-seconds": 5.0}, **changed)


def test_tables_at_sites_are_standardised_by_the_moments_of_all(tmp_path: Path) -> None:
    older = TABLE.replace("\n2", "\n7")
    found = run_coordinator(Wire(hospitals(tmp_path, table=older)), two_classes(tmp_path))
    tables = {"north": TABLE, "south": TABLE, "west": older}
    rows = [f"{name},{line}\n" for name, text in tables.items() for line in text.splitlines()[1:]]
    table = tmp_path / "all.csv"
    table.write_text("site,age,smoker,set\n" + "".join(rows))
    priors = tmp_path / "all-priors.csv"
    priors.write_text(PRIORS)
    study = fedul.load(str(table), priors=str(priors), client_column="site", test_prior="uniform")
    expected = fedul.train(study, method="fedul", rounds=1)
    here, there = weights(found), weights(expected)
    assert float((here - there).norm() / there.norm()) < 1e-5


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"table": TABLE.replace("smoker", "drinker")}, "lacks column 'smoker'"),
        ({"table": "extra," + TABLE.replace("\n", "\n1,").rstrip("1,")}, "has a further column 'extra'"),
        ({"priors": PRIORS.replace("well", "fine")}, "its classes are ill, fine, not ill, well"),
        ({"priors": PRIORS.replace("b,", "c,")}, "have an error; see its log"),
        ({"table": TABLE.replace("\n21,", "\nsecret,")}, "have an error; see its log"),
        ({"min-rows": 1000}, "fewer than its min-rows 1000"),
    ],
)
def test_a_site_with_other_data_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], reason: str
) -> None:
    found = run_coordinator(Wire(hospitals(tmp_path, **changed)), two_classes(tmp_path, 2))
    assert found.history[0].clients == 2
    log = capsys.readouterr().err
    assert "site 'west' is refused: " in log
    assert reason in log
    assert str(tmp_path / "west") not in log
    assert "secret" not in log


def replying(to: str, **values: Any) -> Fault:
    """A fault in every reply to this kind of request."""
    return lambda kind, _, reply: Message({**reply.document, **values}, reply.tensors) if kind == to else reply


FALSE_REPLIES: dict[str, Fault] = {
    "an empty signature": replying("hello", signature={}),
    "a signature that is text": replying("hello", signature="table"),
    "a name that is no text": replying("hello", name={"x": 1}),
    "a name with control characters": replying("hello", name="\x1b[31mnorth\nfedul: done"),
    "no rows": replying("join", rows=-5),
    "too many rows": replying("join", rows=10**17),
    "sums of another length": replying("evaluate_held_out", losses=[1.0], squared_differences=[]),
    "sums of more rows than it has": replying(
        "evaluate_held_out",
        rows=10**9,
        losses=[0.0] * len(TEMPERATURES),
    ),
    "an accuracy that is text": replying("evaluate_locally", rows=True, accuracy="high"),
}


@pytest.mark.parametrize("name", FALSE_REPLIES)
def test_whatever_a_site_replies_the_others_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    found = run_coordinator(Wire(hospitals(tmp_path), {3: FALSE_REPLIES[name]}), two_classes(tmp_path, 2))
    assert found.history[0].clients >= 2
    assert "\x1b" not in capsys.readouterr().err


def test_values_that_few_rows_have_do_not_reach_the_coordinator(tmp_path: Path) -> None:
    rows = TABLE.splitlines()
    table = "\n".join(["rare," + rows[0], "777.125," + rows[1], *("," + row for row in rows[2:])]) + "\n"
    sites = {number: table_site(tmp_path, name, table=table) for number, name in ((1, "north"), (2, "south"))}
    run_coordinator(Wire(sites), two_classes(tmp_path, 2))
    for file in (tmp_path / "run").rglob("*.json"):
        assert "777" not in file.read_text()


def test_a_schema_cannot_ask_for_columns_that_a_site_ignores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask_for_sets(kind: str, messages: Mapping[int, Message]) -> None:
        for message in messages.values():
            if kind == "join":
                message.document["spec"]["schema"]["columns"][0]["name"] = "set"

    sites = {1: table_site(tmp_path, "north"), 2: table_site(tmp_path, "south")}
    with pytest.raises(EnvironmentFailure, match="0 sites can take part"):
        run_coordinator(ChangingWire(sites, ask_for_sets), two_classes(tmp_path, 2))
    assert capsys.readouterr().err.count("is refused: its settings or its data have an error; see its log.") == 2


def test_the_run_folder_has_no_prior_and_no_path_of_a_site(tmp_path: Path) -> None:
    run_coordinator(Wire(hospitals(tmp_path)), two_classes(tmp_path))
    files = [file for file in (tmp_path / "run").rglob("*") if file.suffix in (".json", ".jsonl", ".html")]
    assert {file.name for file in files} >= {"run_spec.json", "config.json", "metrics.jsonl", "report.html"}
    for file in files:
        text = " ".join(file.read_text().split())
        assert "rows.csv" not in text
        assert "0.8, 0.2" not in text
        assert "80 %" not in text


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"method": "supervised"}, "sites have no labels"),
        ({"model": "my.module:factory"}, "sites take models by name only"),
        ({"out": "run"}, "is not an absolute path"),
        ({"classes": "ill"}, "give at least two"),
        ({"min-sites": 9}, "9 is more than the 3 sites"),
        ({"algoritm": "fedavg"}, "did you mean 'algorithm'"),
        ({"out": "/proc/1/none"}, "cannot be created"),
        ({"out": "/dev/null"}, "is a file"),
        (
            {"round_secnds": 3.0},
            "unknown setting 'round-secnds': did you mean 'round-seconds'\\? Known: .*, min-sites, ",
        ),
        ({"algorithm": "nonsense"}, "unknown algorithm 'nonsense'"),
        ({"algorithm": "fedprox", "algorithm-option": "nu=0.1"}, "unknown option of algorithm fedprox 'nu'"),
        ({"method": "nonsense"}, "unknown method 'nonsense'"),
        ({"method-option": "trust=2"}, "unknown option of method fedul 'trust'"),
        ({"method": "fedllp", "loss": "brier"}, "is a loss of fedul, -refined and -combined"),
        ({"model": "mlpp"}, "unknown model 'mlpp': did you mean 'mlp'"),
        ({"test-prior": "ill=0.5"}, "test-prior: no share for class 'well'"),
        ({"test-prior": "ill=1,well=0"}, "test-prior: class 'well' has share 0"),
        ({"start-weights": "weights.safetensors"}, "is not the absolute path of a file"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_any_request(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    wire = Wire(hospitals(tmp_path))
    with pytest.raises(InputError, match=problem):
        run_coordinator(wire, {**two_classes(tmp_path), **changed})
    assert wire.requests == []
    assert not (tmp_path / "run").exists()


def test_a_run_with_other_settings_is_refused_before_any_request(tmp_path: Path) -> None:
    sites = hospitals(tmp_path)
    run_coordinator(Wire(sites), two_classes(tmp_path))
    wire = Wire(sites)
    with pytest.raises(InputError, match=r"holds a different run \(.*algorithm"):
        run_coordinator(wire, two_classes(tmp_path, resume=True, algorithm="scaffold"))
    assert wire.requests == []
