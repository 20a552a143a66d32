"""Sites that fail, lie or differ are named and left out, and the others go on as if they were alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fedul
from fedul.engines.flower.coordinator import coordinate
from fedul.engines.flower.letters import Letter
from fedul.engines.flower.post import Silence
from fedul.errors import InputError, WorldError
from fedul.runs import RunFolder

from .test_parity import settings, weights
from .wire import Fault, Wire, digits_sites


def in_training(change: Callable[[Letter], Letter | None]) -> Fault:
    """A fault in every update."""
    return lambda kind, _, answer: change(answer) if kind == "train" else answer


def with_delta(change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    def changed(answer: Letter) -> Letter:
        return Letter(answer.notes, {k: change(t) if k.startswith("delta/") else t for k, t in answer.tensors.items()})

    return in_training(changed)


def noted(**notes: Any) -> Fault:
    return in_training(lambda answer: Letter({**answer.notes, **notes}, answer.tensors))


FAULTS = {
    "not a number": (with_delta(lambda t: t * math.nan), "holds values that are not finite"),
    "infinite": (with_delta(lambda t: t + math.inf), "holds values that are not finite"),
    "another shape": (with_delta(lambda t: t.unsqueeze(0)), "has shape"),
    "another type": (with_delta(lambda t: t.double()), "holds float64, not float32"),
    "far too long": (with_delta(lambda t: t * 1e4), "times as long as usual"),
    "oversized": (
        in_training(lambda a: Letter(a.notes, {**a.tensors, "x": torch.zeros(2**21)})),
        "bytes, where at most",
    ),
    "nothing": (in_training(lambda _: Letter()), "its tensors are not those of the model"),
    "a stranger's tensor": (
        in_training(lambda a: Letter(a.notes, {**a.tensors, "buffers/x": torch.zeros(1)})),
        "'x' is no buffer of the model",
    ),
    "rows of no number": (noted(rows="many"), "its 'rows' is no number"),
    "no rows": (noted(rows=0), "it claims 0 rows and"),
    "negative steps": (noted(steps=-1.0), "and -1 steps"),
    "far more steps": (noted(steps=1e308), "and 1e+308 steps, where"),
    "silent": (in_training(lambda _: None), "no answer within 1 s"),
}


@pytest.fixture(scope="module")
def without_the_fourth(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """The weights that three of four sites come to by themselves."""
    folder = tmp_path_factory.mktemp("three")
    three = {node: path for node, path in digits_sites(folder, 4, rows=400).items() if node != 4}
    return weights(coordinate(Wire(three), settings(folder, 3, rounds=1)))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_update_that_cannot_be_used_is_named_and_the_others_go_on(
    tmp_path: Path, without_the_fourth: torch.Tensor, fault: str
) -> None:
    change, reason = FAULTS[fault]
    found = coordinate(Wire(digits_sites(tmp_path, 4, rows=400), {4: change}), settings(tmp_path, 4, rounds=1))
    assert found.history[0]["clients"] == 3
    assert reason in found.history[0]["troubles"]["client-4"]
    assert torch.equal(weights(found), without_the_fourth)


def test_a_round_without_enough_updates_is_tried_again_and_then_ends_the_run(tmp_path: Path) -> None:
    faults = dict.fromkeys((1, 2, 3), in_training(lambda _: None))
    wire = Wire(digits_sites(tmp_path, 3), faults)
    with pytest.raises(WorldError, match=r"0 of 2 updates that are needed came in 3 attempts \(client-1: no answer"):
        coordinate(wire, settings(tmp_path, 3))
    assert sum(kind == "train" for _, kind in wire.asked_for) == 9
    assert RunFolder(tmp_path / "run").result() is None
    assert not (tmp_path / "run" / "model").exists()


def test_a_site_that_has_just_failed_is_not_waited_for_again(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3), {3: in_training(lambda _: None)})
    coordinate(wire, settings(tmp_path, 3, rounds=2))
    assert [kind for node, kind in wire.asked_for if node == 3] == ["hello", "join", "train", "train", "evaluate"]


def not_judging(kind: str, _: Letter, answer: Letter) -> Letter | None:
    return None if kind == "judge" else answer


def test_a_round_that_nobody_judges_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="no site judged the round"):
        coordinate(Wire(digits_sites(tmp_path, 2), {1: not_judging, 2: not_judging}), settings(tmp_path, 2, rounds=1))


def test_a_site_that_is_silent_when_the_last_round_is_judged_is_named(tmp_path: Path) -> None:
    found = coordinate(Wire(digits_sites(tmp_path, 3), {3: not_judging}), settings(tmp_path, 3, rounds=2))
    first, last = found.history
    assert {"troubles", "judges"}.isdisjoint(first)
    assert last["clients"] == 3
    assert last["troubles"] == {"client-3": "no answer within 1 s"}
    assert last["judges"] == ["client-1", "client-2"]


def test_a_site_that_is_gone_when_the_last_round_is_judged_is_named(tmp_path: Path) -> None:
    class Leaving(Wire):
        def asked(self, kind: str, *others: Any) -> Any:
            found = super().asked(kind, *others)
            if kind == "train":
                self.settings.pop(3)
            return found

    last = coordinate(Leaving(digits_sites(tmp_path, 3)), settings(tmp_path, 3, rounds=1)).history[-1]
    assert last["troubles"] == {"client-3": "not connected"}
    assert last["judges"] == ["client-1", "client-2"]


def hard(silent_in: int) -> Fault:
    """A site whose held-out rows are hard, and which does not judge one of the rounds."""

    def judged(kind: str, asked: Letter, answer: Letter) -> Letter:
        if (sums := answer.notes.get("judged")) is None:
            return answer
        harder = {"losses": [9 * v for v in sums["losses"]], "squares": [81 * v for v in sums["squares"]]}
        left_out = kind == "train" and asked.notes["round"] == silent_in + 1
        return Letter({**answer.notes, "judged": None if left_out else {**sums, **harder}}, answer.tensors)

    return judged


def test_a_round_is_not_delivered_because_a_site_with_hard_rows_did_not_judge_it(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3), {3: hard(silent_in=2)})
    found = coordinate(wire, settings(tmp_path, 3, rounds=5))
    figures = [line["held_out_loss"] for line in found.history]
    assert figures.index(min(figures)) == 1
    assert ["judges" in line for line in found.history] == [False, True, False, False, False]
    everyone = fedul.train(fedul.load("digits", clients=3), rounds=5)
    assert found.selected_round == everyone.selected_round == 5


def test_rounds_compare_with_each_other_after_the_run_was_taken_up_again_as_without(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 3), {3: hard(silent_in=2)})
    whole = coordinate(wire, settings(tmp_path / "whole", 3, rounds=5))
    coordinate(wire, settings(tmp_path, 3, rounds=4))
    resumed = coordinate(wire, settings(tmp_path, 3, rounds=5, resume=True))
    assert resumed.selected_round == whole.selected_round
    for name in ("held_out_loss", "comparable_loss", "judges"):
        assert [line.get(name) for line in resumed.history] == [line.get(name) for line in whole.history]


def test_a_site_that_was_away_takes_part_again_where_its_last_update_was_taken(tmp_path: Path) -> None:
    def silent_once(kind: str, asked: Letter, answer: Letter) -> Letter | None:
        return None if kind == "train" and asked.notes["round"] == 2 else answer

    found = coordinate(
        Wire(digits_sites(tmp_path, 3), {3: silent_once}), settings(tmp_path, 3, rounds=4, algorithm="scaffold")
    )
    assert [line["clients"] for line in found.history] == [3, 2, 3, 3]
    kept = sorted(path.name for path in (tmp_path / "client-3" / "state").rglob("*@*"))
    # Of round 2 nothing is left; round 1 is what the last checkpoint rests on.
    assert [name.partition("@")[2] for name in kept] == ["1.safetensors", "3.safetensors", "4.safetensors"]


def test_a_site_that_starts_again_under_another_number_is_the_same_site(tmp_path: Path) -> None:
    class Restarting(Wire):
        def asked(self, kind: str, letters: Any, seconds: float) -> Any:
            if kind == "train" and 2 in letters and letters[2].notes["round"] == 2:
                self.settings[20] = self.settings.pop(2)
                letters = {node: letter for node, letter in letters.items() if node != 2}
                found = super().asked(kind, letters, seconds)
                return {**found, 2: self._asked("nonsense", 20, Letter())}
            return super().asked(kind, letters, seconds)

    found = coordinate(Restarting(digits_sites(tmp_path, 3)), settings(tmp_path, 3, rounds=3, algorithm="scaffold"))
    assert [line["clients"] for line in found.history] == [3, 2, 3]


@pytest.mark.parametrize("kind", ["hello", "join"])
def test_a_site_that_is_slow_to_answer_at_first_is_asked_again(tmp_path: Path, kind: str) -> None:
    silences = iter([None, None])

    def slow(asked: str, _: Letter, answer: Letter) -> Letter | None:
        return next(silences, answer) if asked == kind else answer

    found = coordinate(Wire(digits_sites(tmp_path, 2, rows=400), {2: slow}), settings(tmp_path, 2, rounds=1))
    assert found.history[0]["clients"] == 2


@pytest.mark.parametrize("kind", ["hello", "join"])
def test_a_site_that_never_answers_is_asked_three_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    def silent(asked: str, _: Letter, answer: Letter) -> Letter | None:
        return None if asked == kind else answer

    wire = Wire(digits_sites(tmp_path, 3, rows=400), {3: silent})
    coordinate(wire, settings(tmp_path, 2, rounds=4))
    assert [asked for node, asked in wire.asked_for if node == 3].count(kind) == 3
    told = capsys.readouterr().err
    assert told.count("does not answer: no answer within 1 s; it is asked again.") == 2
    assert told.count("is refused: no answer within 1 s.") == 1


def test_a_site_whose_answering_process_was_ended_is_asked_again(tmp_path: Path) -> None:
    ends = iter([Letter({"problem": "the process that answered was ended", "name": "client-2", "again": True})] * 2)

    def unlucky(asked: str, _: Letter, answer: Letter) -> Letter:
        return next(ends, answer) if asked == "hello" else answer

    found = coordinate(Wire(digits_sites(tmp_path, 2, rows=400), {2: unlucky}), settings(tmp_path, 2, rounds=1))
    assert found.history[0]["clients"] == 2


def test_sites_that_do_not_judge_the_result_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent: Fault = lambda kind, _, answer: None if kind == "evaluate" else answer  # noqa: E731
    coordinate(Wire(digits_sites(tmp_path, 2, rows=400), {1: silent, 2: silent}), settings(tmp_path, 2, rounds=1))
    assert capsys.readouterr().err.count("does not say what it thinks of the classifier: no answer within 1 s.") == 2
    assert "no site answered" in (tmp_path / "run" / "report.html").read_text()


def test_a_second_process_of_a_site_is_named_once_and_let_in_when_the_first_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Doubled(Wire):
        def asked(self, kind: str, letters: Any, seconds: float) -> Any:
            found = super().asked(kind, letters, seconds)
            if kind == "train":
                number = next(iter(letters.values())).notes["round"]
                if number == 1:
                    self.settings[20] = self.settings[2]
                elif number == 3:
                    del self.settings[2]
            return found

    wire = Doubled(digits_sites(tmp_path, 2, rows=400))
    found = coordinate(wire, settings(tmp_path, 2, rounds=5))
    assert [line["clients"] for line in found.history] == [2] * 5
    assert [kind for node, kind in wire.asked_for if node == 20][:4] == ["hello", "hello", "join", "train"]
    assert capsys.readouterr().err.count("site 'client-2' is there twice") == 1


def test_two_sites_of_one_name_are_not_taken_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sites = digits_sites(tmp_path, 3)
    coordinate(Wire({**sites, 4: sites[3]}), settings(tmp_path, 3, rounds=1))
    assert "site 'client-3' is refused: another site has the same name." in capsys.readouterr().err


TABLE = "age,smoker,set\n" + "".join(f"{20 + i % 50},{'yes' if i % 3 else 'no'},{'ab'[i % 2]}\n" for i in range(120))
PRIORS = "set,ill,well\na,0.8,0.2\nb,0.3,0.7\n"


def table_site(folder: Path, name: str, table: str = TABLE, priors: str = PRIORS, **options: Any) -> Path:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "rows.csv").write_text(table)
    (place / "priors.csv").write_text(priors)
    told = "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
    (place / "site.toml").write_text(f'name = "{name}"\n{told}[data]\ndata = "rows.csv"\npriors = "priors.csv"\n')
    return place / "site.toml"


def hospitals(folder: Path, **strange: Any) -> dict[int, Path]:
    """Two sites with the same columns, and a third that may differ."""
    return {1: table_site(folder, "north"), 2: table_site(folder, "south"), 3: table_site(folder, "west", **strange)}


def two_classes(folder: Path, sites: int = 3, **changed: Any) -> dict[str, Any]:
    return settings(folder, sites, classes="ill,well", rounds=1, **{"start-seconds": 5.0}, **changed)


def test_tables_at_sites_are_standardised_by_the_moments_of_all(tmp_path: Path) -> None:
    older = TABLE.replace("\n2", "\n7")
    found = coordinate(Wire(hospitals(tmp_path, table=older)), two_classes(tmp_path))
    tables = {"north": TABLE, "south": TABLE, "west": older}
    rows = [f"{name},{line}\n" for name, text in tables.items() for line in text.splitlines()[1:]]
    table = tmp_path / "all.csv"
    table.write_text("site,age,smoker,set\n" + "".join(rows))
    priors = tmp_path / "all-priors.csv"
    priors.write_text(PRIORS)
    study = fedul.load(str(table), priors=str(priors), client_column="site")
    expected = fedul.train(study, rounds=1)
    here, there = weights(found), weights(expected)
    assert float((here - there).norm() / there.norm()) < 1e-5


@pytest.mark.parametrize(
    ("strange", "reason"),
    [
        ({"table": TABLE.replace("smoker", "drinker")}, "lacks column 'smoker'"),
        ({"table": "extra," + TABLE.replace("\n", "\n1,").rstrip("1,")}, "has a further column 'extra'"),
        ({"priors": PRIORS.replace("well", "fine")}, "its classes are ill, fine, not ill, well"),
        ({"priors": PRIORS.replace("b,", "c,")}, "have a fault, which its own log tells"),
        ({"table": TABLE.replace("\n21,", "\nsecret,")}, "have a fault, which its own log tells"),
        ({"min-rows": 1000}, "fewer than its min-rows 1000"),
    ],
)
def test_a_site_that_differs_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strange: dict[str, Any], reason: str
) -> None:
    found = coordinate(Wire(hospitals(tmp_path, **strange)), two_classes(tmp_path, 2))
    assert found.history[0]["clients"] == 2
    told = capsys.readouterr().err
    assert "site 'west' is refused: " in told
    assert reason in told
    assert str(tmp_path / "west") not in told
    assert "secret" not in told


def answering(kind: str, **notes: Any) -> Fault:
    """A fault in every answer of this kind."""
    return lambda asked, _, answer: Letter({**answer.notes, **notes}, answer.tensors) if asked == kind else answer


LIES: dict[str, Fault] = {
    "no form": answering("hello", form={}),
    "a form of text": answering("hello", form="table"),
    "a name that is none": answering("hello", name={"x": 1}),
    "a name that moves the cursor": answering("hello", name="\x1b[31mnorth\nfedul: done"),
    "no rows": answering("join", rows=-5),
    "rows without end": answering("join", rows=10**17),
    "sums of another length": answering("judge", judged={"rows": 1, "losses": [1.0], "squares": [], "changes": []}),
    "sums of more rows than it has": answering(
        "judge", judged={"rows": 10**9, "losses": [0.0] * 21, "squares": [0.0] * 21, "changes": [0.0] * 21}
    ),
    "no opinion": answering("evaluate", rows=True, accuracy="high"),
}


@pytest.mark.parametrize("lie", LIES)
def test_whatever_a_site_says_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str], lie: str) -> None:
    found = coordinate(Wire(hospitals(tmp_path), {3: LIES[lie]}), two_classes(tmp_path, 2))
    assert found.history[0]["clients"] >= 2
    assert "\x1b" not in capsys.readouterr().err


def test_numbers_that_few_rows_have_are_not_told(tmp_path: Path) -> None:
    rows = TABLE.splitlines()
    table = "\n".join(["rare," + rows[0], "777.125," + rows[1], *("," + row for row in rows[2:])]) + "\n"
    sites = {number: table_site(tmp_path, name, table=table) for number, name in ((1, "north"), (2, "south"))}
    coordinate(Wire(sites), two_classes(tmp_path, 2))
    for file in (tmp_path / "run").rglob("*.json"):
        assert "777" not in file.read_text()


def test_a_schema_cannot_ask_for_columns_that_a_site_ignores(tmp_path: Path) -> None:
    def greedy(wire: Wire) -> list[str]:
        seen = []

        def asked(kind: str, letters: Any, seconds: float) -> Any:
            if kind == "join":
                for letter in letters.values():
                    letter.notes["agreement"]["schema"]["columns"][0]["name"] = "set"
            answers = Wire.asked(wire, kind, letters, seconds)
            seen.extend(answer.reason for answer in answers.values() if isinstance(answer, Silence))
            return answers

        wire.asked = asked  # type: ignore[method-assign]
        with pytest.raises(WorldError, match="0 sites can take part"):
            coordinate(wire, two_classes(tmp_path, 2))
        return seen

    sites = {1: table_site(tmp_path, "north"), 2: table_site(tmp_path, "south")}
    assert greedy(Wire(sites)) == ["its settings or its data have a fault, which its own log tells"] * 2


def test_what_the_coordinator_keeps_names_no_prior_and_no_path_of_a_site(tmp_path: Path) -> None:
    coordinate(Wire(hospitals(tmp_path)), two_classes(tmp_path))
    told = [file for file in (tmp_path / "run").rglob("*") if file.suffix in (".json", ".jsonl", ".html")]
    assert {file.name for file in told} >= {"agreement.json", "config.json", "metrics.jsonl", "report.html"}
    for file in told:
        text = " ".join(file.read_text().split())
        assert "rows.csv" not in text
        assert "0.8, 0.2" not in text
        assert "80 %" not in text


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"method": "supervised"}, "sites have no labels"),
        ({"model": "my.module:factory"}, "sites take models by name only"),
        ({"out": "run"}, "is no absolute path"),
        ({"classes": "ill"}, "give at least two"),
        ({"min-sites": 9}, "9 of 3 sites cannot be had"),
        ({"algoritm": "fedavg"}, "did you mean 'algorithm'"),
        ({"out": "/proc/1/none"}, "cannot be made"),
        ({"out": "/dev/null"}, "is a file"),
        (
            {"round_secnds": 3.0},
            "unknown setting 'round-secnds': did you mean 'round-seconds'\\? Known: .*, min-sites, ",
        ),
        ({"algorithm": "nonsense"}, "unknown algorithm 'nonsense'"),
        ({"algorithm": "fedprox", "algorithm-option": "nu=0.1"}, "unknown option of algorithm fedprox 'nu'"),
        ({"method": "nonsense"}, "unknown method 'nonsense'"),
        ({"method-option": "trust=2"}, "unknown option of method fedul 'trust'"),
        ({"method": "fedllp", "loss": "brier"}, "is a loss of fedul and fedul-refined"),
        ({"model": "mlpp"}, "unknown model 'mlpp': did you mean 'mlp'"),
        ({"test-prior": "ill=0.5"}, "test-prior: no share for class 'well'"),
        ({"test-prior": "ill=1,well=0"}, "test-prior: class 'well' has share 0"),
        ({"start-weights": "weights.safetensors"}, "is no absolute path of a file"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anyone_is_asked(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    wire = Wire(hospitals(tmp_path))
    with pytest.raises(InputError, match=problem):
        coordinate(wire, {**two_classes(tmp_path), **changed})
    assert wire.asked_for == []
    assert not (tmp_path / "run").exists()


def test_a_run_with_other_settings_is_not_gone_on_with_and_nobody_is_asked(tmp_path: Path) -> None:
    sites = hospitals(tmp_path)
    coordinate(Wire(sites), two_classes(tmp_path))
    wire = Wire(sites)
    with pytest.raises(InputError, match=r"holds a different run \(.*algorithm"):
        coordinate(wire, two_classes(tmp_path, resume=True, algorithm="scaffold"))
    assert wire.asked_for == []
