"""Sentences about the assumption test."""

from __future__ import annotations

import io
from dataclasses import asdict

import pytest
from rich.console import Console

from fedul.evaluation.assumption import MIXES_DIFFER, ROWS_DIFFER, AssumptionTest, ColumnDifference, Misfit
from fedul.evaluation.document import Evaluation
from fedul.evaluation.sentences import CHECK_PRIORS, DIFFER_IN_GENERAL, REMEDIES, assumption_advice, column_advice

STORE = Misfit("7", None, 0.001, ROWS_DIFFER)
LOYAL = ColumnDifference("LoyalCH", "7", None, -0.83, 0.001)


def evaluation(test: AssumptionTest) -> Evaluation:
    return Evaluation(0.8, (0.7, 0.9), 100, ("a", "b"), test)


@pytest.mark.parametrize(
    ("difference", "where"),
    [
        (LOYAL, "differs between clients beyond what the class mix explains (by 0.8 standard deviations at '7')."),
        (ColumnDifference("LoyalCH", "7", None, 0.034, 0.001), "(by 0.034 standard deviations at '7')."),
        (
            ColumnDifference("LoyalCH", "7", "May", 1.26, 0.001),
            "by 1.3 standard deviations in set 'May' of client '7').",
        ),
    ],
)
def test_advice_on_a_column_says_where_it_differs_and_by_how_much(difference: ColumnDifference, where: str) -> None:
    assert column_advice(difference).startswith("Drop or transform `LoyalCH`: it differs between ")
    assert column_advice(difference).endswith(where)


def test_a_contradiction_is_followed_by_columns_and_remedies() -> None:
    test = AssumptionTest(0.001, (STORE,), columns=(LOYAL,))
    assert assumption_advice(test) == [column_advice(LOYAL), REMEDIES]
    screen = io.StringIO()
    Console(file=screen, width=80, highlight=False).print(evaluation(test))
    assert "Drop or transform `LoyalCH`" in screen.getvalue()
    assert "--site-adjustment auto" in screen.getvalue()
    assert max(map(len, screen.getvalue().splitlines())) <= 80


def test_advice_says_if_clients_differ_in_general_and_if_priors_are_suspect() -> None:
    assert assumption_advice(AssumptionTest(0.001)) == [DIFFER_IN_GENERAL, REMEDIES]
    wrong = AssumptionTest(0.001, (Misfit("7", None, 0.001, MIXES_DIFFER),))
    assert assumption_advice(wrong) == [CHECK_PRIORS, REMEDIES]


def test_no_advice_without_a_contradiction() -> None:
    assert assumption_advice(AssumptionTest(0.4)) == []
    assert assumption_advice(AssumptionTest(None, reason="too few sets")) == []


def test_columns_are_stored_and_older_documents_have_none() -> None:
    stored = evaluation(AssumptionTest(0.001, (STORE,), columns=(LOYAL,))).to_dict()
    assert stored["assumption"]["columns"] == [asdict(LOYAL)]
    assert Evaluation.from_dict(stored).assumption.columns == (LOYAL,)
    del stored["assumption"]["columns"]
    assert Evaluation.from_dict(stored).assumption.columns == ()
