"""`fedul federation audit`: attacks on a run, as a user runs them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from fedul.auditing.document import AuditResult

from .command import Fedul, Warm


@pytest.fixture
def fedul(warm: Warm, trained_hospitals: Path) -> Fedul:
    return partial(warm.run, at=trained_hospitals)


@pytest.mark.slow
def test_an_audit_attacks_a_run_and_its_page_shows_the_result(fedul: Fedul, trained_hospitals: Path) -> None:
    outcome = fedul("federation audit RUN --shadows 4 --canaries 40 --json")
    assert outcome.code == 0, outcome.err
    stored = json.loads((trained_hospitals / "RUN" / "audit.json").read_text())
    assert outcome.document == stored
    result = AuditResult.from_dict(stored)
    assert {each.protection for each in result.membership} == {"none", "dp"}
    assert [each.canaries for each in result.canaries if each.protection == "none"] == [40]
    assert all(each.bound <= each.stated for each in result.canaries if each.stated is not None)
    assert "does not show that the data is safe" in " ".join(repr(result).split())
    assert fedul("report RUN").code == 0
    page = (trained_hospitals / "RUN" / "report.html").read_text()
    assert "Attacks on this configuration" in page
    assert "lower bound on epsilon (95 %)" in page


@pytest.mark.slow
def test_data_is_trained_on_first(fedul: Fedul, trained_hospitals: Path) -> None:
    data = "--data patients.csv --priors prevalence.csv --client-column hospital --set-column month --rounds 1"
    line = f"federation audit {data} --truth-column truth --method fedul --attacks gradient-inversion --out NEW"
    outcome = fedul(line)
    assert outcome.code == 0, outcome.err
    text = " ".join(outcome.out.split())
    assert "Without protection, the update of one client with a batch of 1 row gives the row exactly." in text
    assert "a sum over 2 clients hides no single one" in text
    assert (trained_hospitals / "NEW" / "audit.json").is_file()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("federation audit RUN --attacks canarys", "unknown attack 'canarys': did you mean 'canaries'?"),
        ("federation audit RUN --attacks ,", "attacks: none is given"),
        ("federation audit NOTHING", "NOTHING"),
        ("federation audit", "nothing to audit; give RUN, the folder of a finished run, or --data."),
        ("federation audit RUN --rounds 3", "rounds: is that of the run"),
        ("federation audit RUN --out OTHER", "out: is that of the run"),
        ("federation audit RUN --epsilon 0", "epsilon: expected a number above 0"),
        ("federation audit RUN --canaries 3", "canaries"),
        ("federation audit RUN --shadows 1", "shadows"),
    ],
)
def test_wrong_input_gives_one_sentence(fedul: Fedul, line: str, sentence: str) -> None:
    outcome = fedul(line)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_a_run_whose_data_is_gone_is_refused(fedul: Fedul) -> None:
    outcome = fedul("federation audit RUN --data moved.csv")
    assert outcome.code == 2
    assert "moved.csv" in outcome.err
