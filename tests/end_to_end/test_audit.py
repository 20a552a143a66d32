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
    assert "does not show that the data is safe" in repr(result)
    assert fedul("report RUN").code == 0
    page = (trained_hospitals / "RUN" / "report.html").read_text()
    assert "Attacks on this configuration" in page
    assert "lower bound on epsilon (95 %)" in page


@pytest.mark.slow
def test_data_is_trained_on_first(warm: Warm, tmp_path: Path) -> None:
    data = "--data digits --clients 3 --sets 2 --rows 300 --method fedul --model linear --rounds 1"
    outcome = warm.run(f"federation audit {data} --attacks class-priors,gradient-inversion --out RUN", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "finds the class priors of every client exactly" in " ".join(outcome.out.split())
    assert (tmp_path / "RUN" / "audit.json").is_file()


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


def test_a_run_whose_data_is_gone_is_refused(fedul: Fedul, trained_hospitals: Path) -> None:
    (trained_hospitals / "patients.csv").unlink()
    outcome = fedul("federation audit RUN")
    assert outcome.code == 2
    assert "where nothing is now" in outcome.err
