from __future__ import annotations

from pathlib import Path

from .command import Fedul, contents, is_one_sentence


def test_the_demo_compares_methods_in_one_json_document(fresh_fedul: Fedul, tmp_path: Path) -> None:
    outcome = fresh_fedul("demo --json --rounds 2")
    assert (outcome.code, outcome.err) == (0, "")
    results = {result["method"]: result for result in outcome.document["results"]}
    assert list(results) == ["fedul", "supervised", "supervised-10%"]
    assert results["fedul"]["labels_used"] == 0
    assert results["supervised"]["labels_used"] > 1000
    assert 0.09 < results["supervised-10%"]["labels_used"] / results["supervised"]["labels_used"] < 0.11
    assert all(0 <= result["test_error"] <= 1 for result in results.values())
    assert len(list((tmp_path / outcome.document["run"]).glob("*/model/classifier.json"))) == 3


def test_the_demo_prints_a_table_and_what_it_has_shown(fedul: Fedul) -> None:
    outcome = fedul("demo --rounds 2 --out demo")
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line for line in outcome.out.splitlines() if "%" in line]
    assert [row.strip("│ ").split()[0] for row in rows] == ["fedul", "supervised", "supervised-10%"]
    assert "labels used" in outcome.out
    assert "What was just shown" in outcome.out


def test_the_demo_does_not_write_into_a_folder_that_is_in_use(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    before = contents(tmp_path)
    outcome = fedul("demo --out mine")
    assert outcome.code == 2
    assert is_one_sentence(outcome.err)
    assert contents(tmp_path) == before
