"""The page of a run: well formed, honest about what is missing, and safe whatever the names are."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedul.errors import InputError
from fedul.report.facts import ClientFacts, Facts, facts_of
from fedul.report.judged import Check, Estimate, check_of, evaluation_of
from fedul.report.page import SECTIONS, page
from fedul.runs import RunFolder

from .pages import Reader, as_files, made_up

FULL = made_up()
NASTY = "<script>alert(1)</script>"
QUOTES = "\"&'"

VARIANTS = {
    "with everything": FULL,
    "without an evaluation": replace(FULL, evaluation=None),
    "without a check": replace(FULL, check=None),
    "without the data": replace(FULL, clients=None),
    "without data or check": replace(FULL, clients=None, check=None),
    "without truth": replace(
        FULL,
        result={"selected_round": 3, "labels_used": 0, "test_error": None},
        history=[{"round": 1, "loss": 1.0, "held_out_loss": None}],
    ),
    "unfinished": replace(FULL, result=None, classes=(), test_prior=(), evaluation=None, check=None, clients=None),
    "before the first round": Facts("RUN", {}),
    "with awkward names": made_up(NASTY, QUOTES, NASTY + " North", QUOTES + "</style>"),
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def read(request: pytest.FixtureRequest) -> Reader:
    return Reader(page(request.param))


def changed(facts: Facts, **changes: Any) -> Facts:
    assert facts.evaluation is not None
    return replace(facts, evaluation=replace(facts.evaluation, **changes))


def test_headings_go_down_one_step_at_a_time_from_a_single_first(read: Reader) -> None:
    levels = [int(tag[1]) for tag, _ in read.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_every_table_has_a_caption_and_every_head_says_what_it_heads(read: Reader) -> None:
    assert len(read.all("caption")) == len(read.all("table"))
    assert all(head["scope"] in ("col", "row", "rowgroup") for head in read.all("th"))


def test_every_chart_has_a_title_and_a_description_or_is_hidden_from_screen_readers(read: Reader) -> None:
    charts = [svg for svg in read.all("svg") if svg.get("aria-hidden") != "true"]
    assert all(svg["role"] == "img" for svg in charts)
    assert len(read.all("desc")) == len(charts)
    ids = {attributes["id"] for _, attributes in read.tags if "id" in attributes}
    assert {svg[key] for svg in charts for key in ("aria-labelledby", "aria-describedby")} <= ids


def test_every_link_leads_to_a_place_in_the_page_and_names_are_given_once(read: Reader) -> None:
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [link["href"] for link in read.all("a")]
    assert {f"#{name}" for name in SECTIONS} < set(links)
    assert all(link.removeprefix("#") in ids for link in links)


def test_nothing_is_loaded_and_nothing_is_run(read: Reader) -> None:
    assert not read.all("script", "link", "img", "iframe", "object", "embed", "base", "form")
    assert not any(name.startswith("on") or name in ("src", "srcset") for _, found in read.tags for name in found)
    assert not any(piece in read.text for piece in ("url(", "@import", "http:", "https:"))
    assert any("default-src 'none'" in meta.get("content", "") for meta in read.all("meta"))


def test_names_are_shown_as_they_are_and_never_become_markup() -> None:
    awkward, tame = Reader(page(VARIANTS["with awkward names"])), Reader(page(FULL))
    assert Counter(tag for tag, _ in awkward.tags) == Counter(tag for tag, _ in tame.tags)
    assert f"tells {NASTY} from {QUOTES} in" in awkward.plain
    for shown in (f"{NASTY} North", f"{QUOTES}</style>", f"much {NASTY} would help", f"{QUOTES}, id"):
        assert shown in awkward.plain


def test_the_answer_is_one_sentence_in_plain_words() -> None:
    assert (
        "This classifier tells flu from cold in an estimated 93 % of cases (95 % interval 90 to 95 %); it was learned "
        "from 1,200 rows of 2 clients without one label." in Reader(page(FULL)).plain
    )


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (replace(FULL, evaluation=None), "tells flu from cold in 91.9 % of the labelled test cases"),
        (replace(VARIANTS["without truth"], evaluation=None), "how often correctly is not known yet"),
        (replace(FULL, result=None), "This run is not finished: 4 rounds of 4 are done."),
        (replace(FULL, clients=None, check=None), "it was learned without one label."),
        (replace(FULL, result={"labels_used": 7, "selected_round": 1}), "of 2 clients with 7 labels."),
        (changed(FULL, accuracy=Estimate(0.934, 0.931, 0.937)), "93.4 % of cases (95 % interval 93.1 to 93.7 %)"),
    ],
)
def test_the_answer_says_what_is_known_and_no_more(facts: Facts, said: str) -> None:
    assert said in Reader(page(facts)).plain


def test_many_classes_are_counted_and_not_named() -> None:
    names = tuple(map(str, range(10)))
    read = Reader(page(replace(FULL, classes=names, test_prior=(0.1,) * 10, clients=None, evaluation=None)))
    assert "How well can 10 classes be told apart without labels?" in read.plain


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (changed(FULL, p_value=0.0004), "Caution: the sets do not look like mixtures of the same classes"),
        (changed(FULL, p_value=0.0004), "The sets contradict it (p < 0.001)"),
        (changed(FULL, true_accuracy=0.8), "measured with labels, the accuracy is 80.0 %: outside the interval"),
        (replace(FULL, check=Check(False, [], [])), "the class priors cannot tell the classes apart"),
    ],
)
def test_what_speaks_against_the_answer_is_said(facts: Facts, said: str) -> None:
    assert said in Reader(page(facts)).plain


def test_where_nothing_speaks_against_it_there_is_no_caution() -> None:
    assert "Caution" not in Reader(page(FULL)).plain


def test_without_an_evaluation_the_command_that_gives_it_is_named() -> None:
    read = Reader(page(replace(FULL, evaluation=None, run="runs/my run")))
    assert read.plain.count("fedul evaluate 'runs/my run'") == 4


AT_SITES = changed(
    replace(FULL, clients=None, check=None, across_sites=True),
    confusion=(),
    recall={},
    precision={},
    calibration=(),
    p_value=None,
    misfits=(),
    reason="no site could test it.",
)


def test_the_page_of_a_run_on_sites_says_what_stays_there() -> None:
    plain = Reader(page(AT_SITES)).plain
    assert "Not known: only the accuracy as a whole was estimated. Figures by class would tell of the sites'" in plain
    assert "Not known: class mixes of sets, and figures by set, stay there." in plain
    assert "The data is at the sites and stays there; what each of them estimates is in evaluation.json." in plain
    assert "No single set stands out" not in plain


def test_the_page_of_a_run_on_sites_that_judged_nothing_names_no_command_that_cannot_work() -> None:
    plain = Reader(page(replace(AT_SITES, evaluation=None))).plain
    assert plain.count("no site answered that had enough sets and held-out rows to judge by") == 3
    assert "fedul evaluate" not in plain
    assert "fedul check" not in plain


def test_without_the_data_the_priors_stay_with_the_clients() -> None:
    read = Reader(page(replace(FULL, clients=None)))
    assert "stays with them" in read.plain
    assert not any(table["id"] == "priors-table-caption" for table in read.all("caption"))


def test_a_p_value_that_could_not_be_had_comes_with_its_reason() -> None:
    read = Reader(page(changed(FULL, p_value=None, reason="each client has too few sets.")))
    assert "It could not be tested: each client has too few sets." in read.plain


def test_estimates_below_zero_are_shown_as_they_are_and_explained() -> None:
    plain = Reader(page(FULL)).plain
    assert "\u22121 %" in plain
    assert "may come out slightly beyond" in plain


def test_of_many_sets_and_clients_some_are_shown_and_the_rest_counted() -> None:
    sets = tuple(map(str, range(30)))
    many = [ClientFacts(f"c{i}", i, sets, [[0.5, 0.5]] * 30) for i in range(50)]
    plain = Reader(page(replace(FULL, clients=many, check=None))).plain
    assert "40 sets of 1,500 shown; 1,460 more are not." in plain
    assert "40 clients of 50 shown; 10 more are not." in plain


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [float("nan"), 0.5], [0.0, 0.0], [1e-9, 1e9], [2.0] * 5000])
def test_any_course_of_the_loss_can_be_drawn(values: list[float]) -> None:
    history = [{"round": i + 1, "loss": value, "held_out_loss": None} for i, value in enumerate(values)]
    read = Reader(page(replace(FULL, history=history)))
    drawn = [line["points"] for line in read.all("polyline")]
    assert drawn
    assert not any("nan" in points or "inf" in points for points in drawn)
    assert len(read.text) < 200_000


def test_the_same_facts_give_the_same_page() -> None:
    assert page(made_up()) == page(made_up())


def folder_of(path: Path, facts: Facts) -> RunFolder:
    """A run folder with these facts in it, without a classifier."""
    (path / "config.json").write_text(json.dumps({"format": "fedul-run", "version": 2, **facts.config}))
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in facts.history))
    (path / "result.json").write_text(json.dumps(facts.result))
    for name, content in as_files(facts).items():
        (path / name).write_text(json.dumps(content))
    return RunFolder(path)


def test_facts_are_read_back_from_the_files_of_a_run(tmp_path: Path) -> None:
    found = facts_of(folder_of(tmp_path, FULL))
    assert (found.config, found.history, found.result) == (FULL.config, FULL.history, FULL.result)
    assert (found.evaluation, found.check, found.clients) == (FULL.evaluation, FULL.check, None)


@pytest.mark.parametrize("name", ["evaluation.json", "check.json"])
@pytest.mark.parametrize("content", ["[]", "{}", '{"classes": 3}', "not json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=name):
        evaluation_of(tmp_path / name) if name == "evaluation.json" else check_of(tmp_path / name)


def test_a_confusion_matrix_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    stored = {**as_files(FULL)["evaluation.json"], "confusion": [[1.0]]}
    (tmp_path / "evaluation.json").write_text(json.dumps(stored))
    with pytest.raises(InputError, match="damaged"):
        evaluation_of(tmp_path / "evaluation.json")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run in it"):
        facts_of(RunFolder(tmp_path))


def test_a_client_that_does_not_fit_as_a_whole_is_named_without_a_set(tmp_path: Path) -> None:
    misfit = {"client": "North", "set": None, "p_value": 0.01, "why": "its rows look different"}
    stored = {"estimated_accuracy": 0.9, "classes": ["a", "b"], "assumption": {"p_value": 0.01, "misfits": [misfit]}}
    (tmp_path / "evaluation.json").write_text(json.dumps(stored))
    found = evaluation_of(tmp_path / "evaluation.json")
    assert found is not None
    assert [(one.client, one.set) for one in found.misfits] == [("North", "all")]
