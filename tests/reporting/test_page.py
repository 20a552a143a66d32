"""The page of a run: well formed, honest about what is missing, and safe whatever the names are."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.config import TrainConfig
from fedul.core import RoundMetrics
from fedul.errors import InputError
from fedul.evaluation.assumption import AssumptionTest, ColumnDifference, Misfit
from fedul.evaluation.document import MAJORITY, SOFT_SETS, Baseline
from fedul.evaluation.refusal import NOT_DETERMINED
from fedul.evaluation.sentences import CANNOT_SEE, LABELS_USED, NOT_IDENTIFIABLE
from fedul.evaluation.set_effects import SetEffects
from fedul.privacy.statement import row_statement
from fedul.reporting.page import SECTIONS, render_page
from fedul.reporting.report_data import ClientSummary, ReportData, collect_folder
from fedul.training import RunFolder
from fedul.training.choice import AlternativeScore, Choice

from .pages import Reader, as_files, made_up, refused

FULL = made_up()
assert FULL.result is not None
assert FULL.check is not None
RESULT = FULL.result
NO_P_VALUE = AssumptionTest(None, reason="each client has too few sets.")
NASTY = "<script>alert(1)</script>"
QUOTES = "\"&'"
EFFECTS = SetEffects(visible=0.12, p_value=0.001, spread=1.0, spread_p_value=None)


def changed(data: ReportData, **changes: Any) -> ReportData:
    assert data.evaluation is not None
    return replace(data, evaluation=replace(data.evaluation, **changes))


VARIANTS = {
    "with everything": FULL,
    "without an estimate": refused(FULL),
    "without an estimate and labels": replace(refused(FULL), result=replace(RESULT, test_error=None)),
    "without naive classifiers": changed(FULL, baselines=()),
    "without an evaluation": replace(FULL, evaluation=None),
    "without a check": replace(FULL, check=None),
    "without the data": replace(FULL, clients=None),
    "without data or check": replace(FULL, clients=None, check=None),
    "without truth": replace(
        FULL,
        result=replace(RESULT, test_error=None),
        history=[RoundMetrics(1, 1.0, 2)],
    ),
    "unfinished": replace(FULL, result=None, classes=(), test_prior=(), evaluation=None, check=None, clients=None),
    "before the first round": ReportData("RUN", FULL.record),
    "with awkward names": made_up(NASTY, QUOTES, NASTY + " North", QUOTES + "</style>"),
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def read(request: pytest.FixtureRequest) -> Reader:
    return Reader(render_page(request.param))


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
    awkward, tame = Reader(render_page(VARIANTS["with awkward names"])), Reader(render_page(FULL))
    assert Counter(tag for tag, _ in awkward.tags) == Counter(tag for tag, _ in tame.tags)
    assert f"tells {NASTY} from {QUOTES} in" in awkward.plain_text
    for shown in (f"{NASTY} North", f"{QUOTES}</style>", f"much {NASTY} would help", f"{QUOTES}, id"):
        assert shown in awkward.plain_text


def test_the_answer_is_one_sentence_in_plain_words() -> None:
    assert (
        "This classifier tells flu from cold in an estimated 93 % of cases (95 % interval 90 to 95 %); it was trained "
        "on 1,200 rows of 2 clients without labels." in Reader(render_page(FULL)).plain_text
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (replace(FULL, evaluation=None), "tells flu from cold in 91.9 % of the labelled test cases"),
        (replace(VARIANTS["without truth"], evaluation=None), "with an accuracy that is not known yet"),
        (replace(FULL, result=None), "This run is not finished: 4 rounds of 4 are done."),
        (replace(FULL, clients=None, check=None), "it was trained without labels."),
        (replace(FULL, result=replace(RESULT, labels_used=7)), "of 2 clients with 7 labels."),
        (
            changed(FULL, estimated_accuracy=0.934, interval=(0.931, 0.937)),
            "93.4 % of cases (95 % interval 93.1 to 93.7 %)",
        ),
    ],
)
def test_the_answer_says_what_is_known_and_no_more(data: ReportData, said: str) -> None:
    assert said in Reader(render_page(data)).plain_text


def test_many_classes_are_counted_and_not_named() -> None:
    names = tuple(map(str, range(10)))
    read = Reader(render_page(replace(FULL, classes=names, test_prior=(0.1,) * 10, clients=None, evaluation=None)))
    assert "How well can 10 classes be told apart without labels?" in read.plain_text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            changed(FULL, assumption=AssumptionTest(0.0004)),
            "Caution: the sets differ by more than the class mix explains, so",
        ),
        (changed(FULL, assumption=AssumptionTest(0.0004)), "The sets contradict the assumption that cases of a class"),
        (changed(FULL, set_effects=EFFECTS), "move the score of the classifier at least 12 % as much"),
        (changed(FULL, accuracy=0.8), "Measured with labels, the accuracy is 80.0%: outside the interval"),
        (
            replace(FULL, check=replace(FULL.check, identifiable=False)),
            "The class priors cannot tell the classes apart",
        ),
    ],
)
def test_what_speaks_against_the_answer_is_said(data: ReportData, said: str) -> None:
    assert said in Reader(render_page(data)).plain_text


def test_where_nothing_speaks_against_it_there_is_no_caution() -> None:
    assert "Caution" not in Reader(render_page(FULL)).plain_text


@pytest.mark.parametrize(
    "data",
    [
        changed(FULL, assumption=AssumptionTest(0.0004), set_effects=EFFECTS),
        changed(FULL, baselines=(Baseline(MAJORITY, 0.91),)),
        changed(FULL, accuracy=0.8),
        refused(FULL),
        refused(replace(FULL, check=replace(FULL.check, identifiable=False)), NOT_DETERMINED.reason),
    ],
)
def test_the_opening_and_its_cautions_say_nothing_twice(data: ReportData) -> None:
    assert data.evaluation is not None
    plain = Reader(render_page(data)).plain_text
    opening = plain[: plain.index("Compared with naive classifiers")]
    sentences = [sentence for sentence in opening.split(". ") if len(sentence) > 30]
    assert len(sentences) == len(set(sentences))
    assert "Caution: Caution" not in plain
    assert plain.count("cannot be estimated without labels, because") == (data.evaluation.interval is None)
    assert NOT_IDENTIFIABLE not in plain


def test_an_accuracy_that_cannot_be_estimated_comes_first_with_its_reason_and_remedies() -> None:
    read = Reader(render_page(refused(FULL)))
    plain = read.plain_text
    main = plain[plain.index("Configuration") :]  # after the table of contents
    assert main.startswith(
        "Configuration The accuracy cannot be estimated without labels, because the sets differ in other ways too. "
        "What would help Form sets in another way (--set-column).Label about 100 rows at random (--truth-column)."
    )
    assert "estimated accuracy" not in main
    assert "in an estimated" not in main
    assert "It is right in 91.9 % of the labelled test cases." in main
    assert "neither can the errors of each class" in main
    assert any(attributes.get("class") == "refused" for attributes in read.all("div"))


def test_without_estimate_and_labels_nothing_is_claimed_of_the_accuracy() -> None:
    plain = Reader(render_page(VARIANTS["without an estimate and labels"])).plain_text
    assert "It can predict, but how often it is right is not known." in plain


@pytest.mark.parametrize("name", ["with everything", "without data or check", "without naive classifiers"])
def test_what_no_estimate_can_see_is_stated_where_the_accuracy_is(name: str) -> None:
    assert f"without labels. {CANNOT_SEE}" in Reader(render_page(VARIANTS[name])).plain_text


def test_the_page_says_what_counts_as_a_label() -> None:
    assert LABELS_USED in Reader(render_page(FULL)).plain_text


def test_naive_classifiers_stand_beside_the_trained_one() -> None:
    plain = Reader(render_page(FULL)).plain_text
    assert "This classifier is clearly better than naive ones. Clearly better means" in plain
    for shown in ("this classifier 93.0 %90.0 to 95.0 %", "50.0 %from the priors", "81.0 %75.0 to 86.0 %"):
        assert shown in plain
    unknown = changed(FULL, baselines=(Baseline(SOFT_SETS, None),))
    assert "soft labels cannot be estimated" in Reader(render_page(unknown)).plain_text
    assert "so it cannot be compared" in Reader(render_page(refused(FULL))).plain_text


def test_a_classifier_that_is_no_better_than_a_naive_one_is_called_so_first() -> None:
    read = Reader(render_page(changed(FULL, baselines=(Baseline(MAJORITY, 0.91),))))
    assert "Not clearly better than the majority class (91.0%). This classifier tells flu from cold" in read.plain_text
    assert "clearly better than naive ones" not in read.plain_text


def test_without_an_evaluation_the_command_that_gives_it_is_named() -> None:
    read = Reader(render_page(replace(FULL, evaluation=None, run="runs/my run")))
    assert read.plain_text.count("fedul evaluate 'runs/my run'") == 5


AT_SITES = changed(
    replace(FULL, clients=None, check=None, across_sites=True),
    confusion=(),
    confusion_low=(),
    confusion_high=(),
    recall=(),
    precision=(),
    calibration=(),
    assumption=AssumptionTest(None, reason="no site could test it."),
)


def test_the_page_of_a_run_on_sites_says_what_stays_there() -> None:
    plain = Reader(render_page(AT_SITES)).plain_text
    assert "Not known: only the accuracy as a whole was estimated. Estimates by class would reveal" in plain
    assert "Not known: class mixes of sets, and everything by set, stay at the sites." in plain
    assert "The data is at the sites and stays there; the estimates of single sites were not sent." in plain
    assert "No single set stands out" not in plain


def test_the_page_of_a_run_on_sites_that_evaluated_nothing_names_no_command_that_cannot_work() -> None:
    plain = Reader(render_page(replace(AT_SITES, evaluation=None))).plain_text
    assert plain.count("no site answered that had enough sets and held-out rows for an evaluation") == 3
    assert "fedul evaluate" not in plain
    assert "fedul check" not in plain


def test_without_the_data_the_priors_stay_with_the_clients() -> None:
    read = Reader(render_page(replace(FULL, clients=None)))
    assert "stay with them" in read.plain_text
    assert not any(table["id"] == "priors-table-caption" for table in read.all("caption"))


def test_a_p_value_that_could_not_be_had_comes_with_its_reason() -> None:
    read = Reader(render_page(changed(FULL, assumption=NO_P_VALUE)))
    assert "could not be tested: each client has too few sets." in read.plain_text


def test_of_many_sets_and_clients_some_are_shown_and_the_rest_counted() -> None:
    sets = tuple(map(str, range(30)))
    many = [ClientSummary(f"c{i}", i, sets, [[0.5, 0.5]] * 30) for i in range(50)]
    plain = Reader(render_page(replace(FULL, clients=many, check=None))).plain_text
    assert "40 sets of 1,500 shown; 1,460 more are not." in plain
    assert "40 clients of 50 shown; 10 more are not." in plain


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [float("nan"), 0.5], [0.0, 0.0], [1e-9, 1e9], [2.0] * 5000])
def test_any_course_of_the_loss_can_be_drawn(values: list[float]) -> None:
    history = [RoundMetrics(i + 1, value, 2) for i, value in enumerate(values)]
    read = Reader(render_page(replace(FULL, history=history)))
    drawn = [line["points"] for line in read.all("polyline")]
    assert drawn
    assert not any("nan" in points or "inf" in points for points in drawn)
    assert len(read.text) < 200_000


def test_the_same_data_gives_the_same_page() -> None:
    assert render_page(made_up()) == render_page(made_up())


def folder_of(path: Path, data: ReportData) -> RunFolder:
    """A run folder with this data, without a classifier."""
    data.record.write(path / "config.json")
    (path / "metrics.jsonl").write_text("".join(json.dumps(metrics.to_dict()) + "\n" for metrics in data.history))
    (path / "result.json").write_text(json.dumps(RESULT.to_dict()))
    for name, content in as_files(data).items():
        (path / name).write_text(json.dumps(content))
    return RunFolder(path)


def test_data_is_read_back_from_the_files_of_a_run(tmp_path: Path) -> None:
    found = collect_folder(folder_of(tmp_path, FULL))
    assert (found.record, found.history, found.result) == (FULL.record, FULL.history, FULL.result)
    assert (found.evaluation, found.check, found.clients) == (FULL.evaluation, FULL.check, None)


@pytest.mark.parametrize("name", ["evaluation.json", "check.json"])
@pytest.mark.parametrize("content", ["[]", "{}", '{"classes": 3}', "not json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    run = folder_of(tmp_path, FULL)
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=f"{name}: damaged"):
        collect_folder(run)


@pytest.mark.parametrize("confusion", [[[1.0]], [[1.2, -0.2], [0.0, 1.0]]])
def test_a_confusion_matrix_of_the_wrong_size_or_with_impossible_shares_is_refused(
    tmp_path: Path, confusion: list[list[float]]
) -> None:
    run = folder_of(tmp_path, FULL)
    stored = {**as_files(FULL)["evaluation.json"], "confusion": confusion}
    (tmp_path / "evaluation.json").write_text(json.dumps(stored))
    with pytest.raises(InputError, match="damaged"):
        collect_folder(run)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run in it"):
        collect_folder(RunFolder(tmp_path))


def test_a_client_that_does_not_fit_as_a_whole_is_listed_with_all_its_sets() -> None:
    misfit = Misfit("North", None, 0.01, "its rows look different")
    text = Reader(render_page(changed(FULL, assumption=AssumptionTest(0.01, (misfit,))))).plain_text
    assert "Northall0.01its rows look different" in text


def test_columns_that_differ_and_remedies_are_listed() -> None:
    column = ColumnDifference("age", "North", None, 0.83, 0.001)
    text = Reader(render_page(changed(FULL, assumption=AssumptionTest(0.01, columns=(column,))))).plain_text
    assert "Drop or transform `age`: it differs between clients" in text
    assert "--site-adjustment auto" in text


def test_a_run_in_memory_has_a_page_with_priors_check_and_the_evaluation_that_is_given(tmp_path: Path) -> None:
    run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, seed=0)
    file = fedul.report(run, tmp_path / "page.html", evaluation=FULL.evaluation)
    text = Reader(file.read_text()).plain_text
    assert "in an estimated 93 % of cases" in text
    assert "Share of each class in each set" in text
    assert "Contribution of each client" in text
    with pytest.raises(InputError, match="the run has no folder"):
        fedul.report(run)


def test_the_page_shows_which_settings_were_compared_and_chosen() -> None:
    data = made_up()
    assert data.result is not None
    scores = (AlternativeScore("linear", -0.11, 0.01, 0.004), AlternativeScore("network", -0.12, 0.0, 0.0))
    choice = Choice("network", "it predicts 24 sets best that were left out of training", 24, scores)
    page = Reader(render_page(replace(data, result=replace(data.result, choice=choice))))
    assert "called network were chosen without labels: it predicts 24 sets best" in page.plain_text
    assert "-0.11" in page.plain_text
    nothing = Choice("linear", "nothing was compared")
    assert "chosen without labels" not in render_page(replace(data, result=replace(data.result, choice=nothing)))


def test_the_page_has_every_guarantee_of_the_run_and_epsilon_by_client() -> None:
    assert (
        "Differential privacy was off: nothing bounds what the classifier tells" in Reader(render_page(FULL)).plain_text
    )
    paid = {"North": 2.5, "South": 2.961}
    statement = row_statement(TrainConfig(dp_epsilon=3.0), paid, ("something else",))
    data = replace(FULL, result=replace(RESULT, epsilon=paid, privacy=(statement,)))
    page = Reader(render_page(data)).plain_text
    for sentence in (
        "Each row is protected with epsilon 2.96 at delta 1e-05",
        statement.meaning,
        *statement.covers,
        *statement.left_out,
        *statement.not_covered,
    ):
        assert sentence in page
    assert re.findall(r"(North|South)\s*(2\.\d+)", page) == [("North", "2.5"), ("South", "2.961")]
    seeded = row_statement(TrainConfig(dp_noise=1.0, dp_seeded=True), paid, ())
    page = Reader(render_page(replace(data, result=replace(RESULT, privacy=(seeded,))))).plain_text
    assert "No row is protected" in page
    assert "no guarantee" in page
