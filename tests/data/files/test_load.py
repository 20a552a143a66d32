"""Data of the user's own: rows find their client, set and priors, or a sentence says what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedul
from fedul.core import PriorScope, Study
from fedul.errors import InputError

PRIORS = "hospital,month,flu,cold\nNorth,Jan,0.3,0.7\nNorth,Feb,0.8,0.2\nSouth,Jan,0.5,0.5\n"
SETS = {("North", "Jan"): 20, ("North", "Feb"): 10, ("South", "Jan"): 30}


def table(sets: dict[tuple[str, str], int] = SETS, header: str = "hospital,month,temp,cough") -> str:
    """Rows in an order that is not that of the sets; temperatures are 36.00, 36.01, ..."""
    rows = [key for key, count in sets.items() for _ in range(count)]
    order = np.random.default_rng(0).permutation(len(rows))
    lines = [f"{rows[i][0]},{rows[i][1]},{36 + n / 100:.2f},{'yes' if n % 3 else 'no'}" for n, i in enumerate(order)]
    return "\n".join([header, *lines]) + "\n"


def load(folder: Path, patients: str | None = None, priors: str = PRIORS, **options: object) -> Study:
    (folder / "patients.csv").write_text(table() if patients is None else patients)
    (folder / "prevalence.csv").write_text(priors)
    given = {"priors": str(folder / "prevalence.csv"), "client_column": "hospital", "set_column": "month", **options}
    return fedul.load(str(folder / "patients.csv"), **given)


def test_every_row_is_in_the_set_that_its_line_names(tmp_path: Path) -> None:
    federation = load(tmp_path).federation
    lines = [line.split(",") for line in table().splitlines()[1:]]
    assert federation.classes == ("flu", "cold")
    assert {client.name for client in federation.clients} == {"North", "South"}
    seen = 0
    for client in federation.clients:
        for rows in (client.train, client.held_out):
            for row, number in zip(rows.index.tolist(), rows.sets.tolist(), strict=True):
                assert lines[row][:2] == [client.name, client.set_names[number]]
                seen += 1
    assert seen == len(lines)
    north = next(client for client in federation.clients if client.name == "North")
    assert north.priors.tolist() == [[0.3, 0.7], [0.8, 0.2]]
    assert north.set_names == ("Jan", "Feb")


def test_a_fifth_of_every_set_is_held_out_and_inputs_are_standardised_by_the_other_rows(tmp_path: Path) -> None:
    federation = load(tmp_path).federation
    assert sorted(len(client.held_out) for client in federation.clients) == [6, 6]
    train = np.concatenate([client.train.index.numpy() for client in federation.clients])
    temperatures = federation.clients[0].inputs[:, 0].numpy()
    assert_allclose([temperatures[train].mean(), temperatures[train].std()], [0, 1], atol=1e-5)
    assert abs(temperatures.mean()) > 1e-5  # of all rows it is not


def test_one_file_a_client_is_the_same_as_a_column_that_names_it(tmp_path: Path) -> None:
    whole = load(tmp_path).federation
    (tmp_path / "clients").mkdir()
    header, *lines = table().splitlines()
    for name in ("North", "South"):
        own = [line.partition(",")[2] for line in lines if line.startswith(name)]
        (tmp_path / f"clients/{name}.csv").write_text("\n".join([header.partition(",")[2], *own]) + "\n")
    options = {"priors": str(tmp_path / "prevalence.csv"), "client_column": None, "set_column": "month"}
    (tmp_path / "prevalence.csv").write_text(PRIORS.replace("hospital", "client"))
    parts = fedul.load(str(tmp_path / "clients"), **options).federation
    for client in whole.clients:
        other = next(c for c in parts.clients if c.name == client.name)
        assert client.priors.tolist() == other.priors.tolist()
        values, others = (sorted(c.inputs[c.train.index, 0].tolist()) for c in (client, other))
        assert_allclose(values, others, rtol=1e-4, atol=1e-5)


def test_labelled_rows_are_sets_of_one_class(tmp_path: Path) -> None:
    lines = table(header="hospital,month,temp,cough,known").splitlines()
    lines = [lines[0], *(f"{line},{'flu' if n % 6 == 0 else ''}" for n, line in enumerate(lines[1:]))]
    federation = load(tmp_path, "\n".join(lines), label_column="known").federation
    for client in federation.clients:
        assert client.set_names[-1] == "labelled flu"
        assert client.priors[-1].tolist() == [1, 0]
        labelled = [
            row
            for rows in (client.train, client.held_out)
            for row, m in zip(rows.index.tolist(), rows.sets.tolist(), strict=True)
            if m == len(client.priors) - 1
        ]
        assert all(row % 6 == 0 for row in labelled)
        assert len(labelled) > 0


def test_shares_that_are_the_rows_own_are_those_of_the_rows_that_are_left(tmp_path: Path) -> None:
    lines = [
        "month,temp,known",
        *(f"Jan,{n},{'flu' if n < 2 else ''}" for n in range(10)),
        *(f"Feb,{n}," for n in range(9)),
    ]
    priors = "set,flu,cold\nJan,0.4,0.6\nFeb,0.123,0.877\n"
    options = {"label_column": "known", "client_column": None}
    (client,) = load(tmp_path, "\n".join(lines), priors, priors_of="rows", **options).federation.clients
    assert_allclose(client.priors, [[2 / 8, 6 / 8], [0.123, 0.877], [1, 0]])
    (client,) = load(tmp_path, "\n".join(lines), priors, **options).federation.clients
    assert_allclose(client.priors, [[0.4, 0.6], [0.123, 0.877], [1, 0]])


def test_shares_that_are_declared_to_be_those_of_the_rows_are_unrounded(tmp_path: Path) -> None:
    rows = "month,temp\n" + "".join(f"Jan,{n}\n" for n in range(30)) + "".join(f"Feb,{n}\n" for n in range(7))
    options = {"client_column": None, "priors_of": "rows"}
    priors = "set,flu,cold\nJan,0.3667,0.6333\nFeb,0.43,0.57\n"
    (client,) = load(tmp_path, rows, priors, **options).federation.clients
    assert client.priors[:, 0].tolist() == [11 / 30, 3 / 7]
    assert client.prior_scope == PriorScope("rows")
    (client,) = load(tmp_path, rows, "set,flu,cold\nJan,0.37,0.63\nFeb,0.50,0.50\n", **options).federation.clients
    assert client.priors[:, 0].tolist() == [11 / 30, 0.5]  # no count of seven
    assert client.prior_scope == PriorScope("rows", rounding=0.005)
    (client,) = load(tmp_path, rows, "set,flu,cold\nJan,0.4,0.6\nFeb,0.4,0.6\n", **options).federation.clients
    assert client.priors[:, 0].tolist() == [0.4, 3 / 7]  # 11, 12 and 13 of 30 are 0.4
    (client,) = load(tmp_path, rows, priors, client_column=None).federation.clients
    assert client.priors[:, 0].tolist() == [0.3667, 0.43]


WHOLE_PERCENTS = "hospital,month,flu,cold\nNorth,Jan,30%,70%\nNorth,Feb,80%,20%\nSouth,Jan,50%,50%\n"
COUNTS = "hospital,month,flu,cold\nNorth,Jan,6,14\nNorth,Feb,8,2\nSouth,Jan,15,15\n"
OTHER_COUNTS = COUNTS.replace("Feb,8,2", "Feb,80,20")


@pytest.mark.parametrize(
    ("priors", "priors_of", "north", "south"),
    [
        (WHOLE_PERCENTS, "auto", PriorScope("population", 0.005), PriorScope("population", 0.005)),
        (WHOLE_PERCENTS, "rows", PriorScope("rows"), PriorScope("rows")),
        (COUNTS, "auto", PriorScope("rows"), PriorScope("rows")),
        (COUNTS, "population", PriorScope(), PriorScope()),
        (OTHER_COUNTS, "auto", PriorScope(), PriorScope("rows")),
    ],
    ids=["whole percents", "declared", "counts of the rows", "declared otherwise", "counts of other cases"],
)
def test_what_priors_speak_of_is_declared_and_not_inferred_from_whole_numbers(
    tmp_path: Path, priors: str, priors_of: str, north: PriorScope, south: PriorScope
) -> None:
    clients = {c.name: c for c in load(tmp_path, priors=priors, priors_of=priors_of).federation.clients}
    assert clients["North"].prior_scope == north
    assert clients["South"].prior_scope == south


def test_counts_that_do_not_add_up_cannot_be_declared_to_be_those_of_the_rows(tmp_path: Path) -> None:
    message = r"the counts of set 'Feb' of client 'North' sum to 100, but it has 10 rows"
    with pytest.raises(InputError, match=message):
        load(tmp_path, priors=OTHER_COUNTS, priors_of="rows")


def test_counts_of_other_cases_leave_the_priors_unsure_and_counts_of_the_rows_do_not(tmp_path: Path) -> None:
    priors = "hospital,month,flu,cold\nNorth,Jan,6,14\nNorth,Feb,80,20\nSouth,Jan,15,15\n"
    counts = load(tmp_path, priors=priors).prior_counts
    assert counts["North"].tolist() == [np.inf, 100]
    assert counts["South"].tolist() == [np.inf]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("uniform", [0.5, 0.5]), ("flu=0.1,cold=0.9", [0.1, 0.9]), ("natural", [29 / 60, 31 / 60])],
)
def test_the_test_prior_may_be_said_in_words(tmp_path: Path, text: str, expected: list[float]) -> None:
    assert_allclose(load(tmp_path, test_prior=text).federation.test_prior, expected, atol=0.02)


def test_the_test_prior_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "mix.csv").write_text("cold,flu\n0.8,0.2\n")
    assert load(tmp_path, test_prior=str(tmp_path / "mix.csv")).federation.test_prior.tolist() == [0.2, 0.8]
    (tmp_path / "mix.csv").write_text("cold,flu\n0.8,0.2\n0.5,0.5\n")
    with pytest.raises(InputError, match=r"mix\.csv: 2 rows; a class mix is one row"):
        load(tmp_path, test_prior=str(tmp_path / "mix.csv"))


def test_truth_is_read_apart_and_never_a_feature(tmp_path: Path) -> None:
    lines = table(header="hospital,month,temp,cough,really").splitlines()
    lines = [lines[0], *(f"{line},{('flu', 'cold')[n % 2]}" for n, line in enumerate(lines[1:]))]
    study = load(tmp_path, "\n".join(lines), truth_column="really")
    assert study.truth is None
    assert study.federation.schema is not None
    assert "really" not in str(study.federation.schema.to_dict())
    labels = study.true_labels
    assert labels is not None
    for client in study.federation.clients:
        assert labels[client.name][0].tolist() == (client.train.index % 2).tolist()


def test_columns_that_are_ignored_are_no_features_and_codes_are_categories(tmp_path: Path) -> None:
    lines = table(header="hospital,month,temp,cough,ward,note").splitlines()
    lines = [lines[0], *(f"{line},{n % 3},{n}" for n, line in enumerate(lines[1:]))]
    study = load(tmp_path, "\n".join(lines), ignore_columns="note, cough", category_columns=["ward"])
    assert study.federation.schema is not None
    columns = study.federation.schema.to_dict()["columns"]
    assert [(column["name"], column["kind"]) for column in columns] == [("temp", "number"), ("ward", "category")]
    assert columns[1]["words"] == ("0", "1", "2")


@pytest.mark.parametrize(
    ("patients", "priors", "options", "complaint"),
    [
        (None, PRIORS.replace("North,Feb,0.8,0.2\n", ""), {}, "has no priors for set 'Feb' of client 'North'"),
        (None, PRIORS.replace("South,Jan,0.5,0.5\n", ""), {}, "has no priors for client 'South'"),
        (None, PRIORS + "North,Mar,0.5,0.5\n", {}, "has priors for set 'Mar' of client 'North', of which .* no rows"),
        (None, PRIORS + "East,Jan,0.5,0.5\n", {}, "has priors for client 'East', of which .* no rows; its clients are"),
        (table().replace("North,Jan,36.0", "North,,36.0", 1), PRIORS, {}, r"patients\.csv, line \d+: names no set"),
        (table().replace("North,", ",", 1), PRIORS, {}, r"patients\.csv, line \d+: names no client"),
        ("hospital,month,temp\n", PRIORS, {}, "holds no rows"),
        (None, PRIORS, {"set_column": "week"}, "there is no column 'week'; it has hospital, month, temp, cough"),
        (None, PRIORS, {"set_column": None}, "which column names the set of a row"),
        (None, PRIORS, {"ignore_columns": "temp,cough"}, "no column can be used as a feature"),
        (None, PRIORS, {"category_columns": "month"}, "category-columns: 'month' is not a feature"),
        (None, PRIORS, {"label_column": "cough"}, "'no' of label-column is none of the classes flu, cold"),
        (None, PRIORS, {"test_prior": "flu=1,cold=0"}, "test-prior: class 'cold' has share 0"),
        (None, PRIORS, {"test_prior": "mix.csv"}, "'mix.csv' is not CLASS=SHARE"),
        (None, PRIORS, {"sets": 3}, "sets: is for data sets by name"),
        (None, PRIORS, {"columns": "x"}, "unknown option 'columns'"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, patients: str | None, priors: str, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        load(tmp_path, patients, priors, **options)


def test_a_table_needs_priors(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("set,age\na,1\n")
    with pytest.raises(
        InputError, match=r"x\.csv: needs --priors, a table with client,set and a column for each class"
    ):
        fedul.load(str(tmp_path / "x.csv"))


def test_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("set,age\na,1\n")
    (tmp_path / "south.csv").write_text("set,weight\na,1\n")
    (tmp_path / "p.csv.priors").write_text("set,x,y\na,0.5,0.5\n")
    with pytest.raises(InputError, match=r"south\.csv: lacks column 'age', which north\.csv has"):
        fedul.load(f"{tmp_path}/*.csv", priors=str(tmp_path / "p.csv.priors"))


def test_arrays_are_read_from_one_file(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 1, 4, 4)).astype(np.float32)
    groups = {"set": np.repeat(["a", "b", "c"], 10), "client": np.repeat([1, 2, 1], 10)}
    np.savez(tmp_path / "x.npz", X=x, **groups)
    (tmp_path / "p.csv").write_text("client,set,p,q\n1,a,0.5,0.5\n2,b,0.1,0.9\n1,c,0.9,0.1\n")
    federation = fedul.load(str(tmp_path / "x.npz"), priors=str(tmp_path / "p.csv")).federation
    assert federation.input_shape == (1, 4, 4)
    assert [client.set_names for client in federation.clients] == [("a", "c"), ("b",)]
    np.savez(tmp_path / "alone.npz", X=x, set=groups["set"])
    (tmp_path / "p.csv").write_text("set,p,q\na,0.5,0.5\nb,0.1,0.9\nc,0.9,0.1\n")
    assert len(fedul.load(str(tmp_path / "alone.npz"), priors=str(tmp_path / "p.csv")).federation.clients) == 1


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"X": np.zeros((3, 2))}, "holds no array called set"),
        ({"X": np.zeros(3), "set": np.zeros(3, int)}, "X holds float64 of shape"),
        ({"X": np.full((3, 2), np.nan), "set": np.zeros(3, int)}, "row 1: has a value that is missing or infinite"),
        ({"X": np.zeros((3, 2)), "set": np.zeros(2, int)}, "set holds int64 of shape"),
        ({"X": np.array([[object()]] * 3), "set": np.zeros(3, int)}, "not a readable .npz file"),
    ],
)
def test_arrays_that_make_no_sense_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], complaint: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    (tmp_path / "p.csv").write_text("set,p,q\n0,0.5,0.5\n")
    with pytest.raises(InputError, match=complaint):
        fedul.load(str(tmp_path / "x.npz"), priors=str(tmp_path / "p.csv"))


def test_a_row_without_a_true_class_is_refused_by_the_name_of_the_column(tmp_path: Path) -> None:
    lines = table(header="hospital,month,temp,cough,really").splitlines()
    lines = [lines[0], *(f"{line},{'flu' if n else ''}" for n, line in enumerate(lines[1:]))]
    with pytest.raises(InputError, match="have no true class; fill 'really'"):
        load(tmp_path, "\n".join(lines), truth_column="really")
