"""Statistics of all rows from a secure sum give the same schema and class mix as statistics in the open."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies

from fedul._utils.files import read_json
from fedul.core import Rows, UnlabeledSets
from fedul.data.files.schema.column_stats import ColumnStats, column_stats
from fedul.data.files.schema.infer import infer_schema
from fedul.engines.flower.secure.exact_sums import DIGITS, decode_exact, encode_exact, exact_field
from fedul.engines.flower.secure.statistics import SiteTotals, from_numbers, parse_words, to_numbers, without_words
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.errors import EnvironmentFailure, InputError
from fedul.privacy.secure_aggregation.layout import VectorLayout

from .secure_sites import add_identity, secure_settings, write_identities
from .test_faults import PRIORS, TABLE, hospitals, two_classes
from .test_parity import weights
from .wire import Wire

WORDS = {"ward": ("A", "B", "C")}
NAMES = ("north", "south", "west")


@given(
    strategies.lists(strategies.lists(strategies.floats(-1e30, 1e30), min_size=2, max_size=2), min_size=1, max_size=60)
)
@settings(max_examples=40, deadline=None)
def test_exact_sums_are_exact_whatever_the_scale_of_the_numbers(sites: list[list[float]]) -> None:
    layout = VectorLayout((exact_field("numbers", 2),), sites=64)
    sums = layout.encode({"numbers": encode_exact(sites[0])}).words
    for numbers in sites[1:]:
        sums.add(layout.encode({"numbers": encode_exact(numbers)}).words)
    found = decode_exact(layout.decode(sums)["numbers"])
    for place in (0, 1):
        expected = sum(Fraction(numbers[place]) for numbers in sites)
        assert abs(found[place] - expected) <= Fraction(len(sites), 2**64)


def test_digits_of_a_number_are_hidden_among_those_of_any_other() -> None:
    """The lower digits of sums vary by far more than those of the numbers themselves."""
    digits = np.array([encode_exact([1.0]) for _ in range(400)]).reshape(400, DIGITS)
    assert (digits[:, :-1].std(axis=0) > 2.0**40).all()


def test_a_number_that_cannot_be_summed_is_refused() -> None:
    for number in (math.nan, math.inf, 1e60):
        with pytest.raises(InputError, match="is too large to be summed"):
            encode_exact([number])


def site(ages: list[float | None], wards: list[str], priors: list[list[float]]) -> tuple[UnlabeledSets, dict[str, Any]]:
    """A site with two columns, two sets and all rows for training."""
    import torch

    count = len(ages)
    sets = torch.arange(count) % 2
    client = UnlabeledSets(
        "x", torch.zeros(count, 1), Rows(torch.arange(count), sets), Rows(sets[:0], sets[:0]), np.array(priors)
    )
    return client, {"age": column_stats(pa.array(ages)), "ward": column_stats(pa.array(wards))}


def test_totals_of_sites_give_the_schema_of_their_pooled_rows() -> None:
    generator = np.random.default_rng(0)
    sites = [
        site(
            [None if i == 7 else float(age) for i, age in enumerate(generator.normal(2020, 3, 60))],
            generator.choice(["A", "B", "C"], 60).tolist(),
            [[0.9, 0.1], [share, 1 - share]],
        )
        for share in (0.2, 0.4, 0.6)
    ]
    columns = ("age", "ward")
    numbers = [to_numbers(SiteTotals.of_client(client, stats), columns, WORDS) for client, stats in sites]
    sums = sum(encode_exact(each) for each in numbers)
    totals = from_numbers(decode_exact(np.asarray(sums)), 2, columns, WORDS)
    pooled = {name: sum((stats[name] for _, stats in sites), ColumnStats()) for name in columns}
    expected, _ = infer_schema(pooled)
    found, _ = infer_schema(totals.columns)
    age, other = found.columns[0], expected.columns[0]
    assert (age.mean, age.deviation) == pytest.approx((other.mean, other.deviation), rel=1e-12)  # type: ignore[union-attr]
    assert age.missing
    assert found.columns[1] == expected.columns[1]
    assert (totals.sites, totals.rows, totals.sets, totals.identifying_sites) == (3, 180, 6, 3)
    assert totals.class_mix == pytest.approx([(0.9 + 0.4) / 2, (0.1 + 0.6) / 2])


def test_a_column_of_words_that_nobody_has_listed_is_left_out() -> None:
    stats = {"ward": ColumnStats(rows=9, rest=True), "age": ColumnStats(rows=9, numbers=9)}
    used, warnings = without_words(stats, {})
    assert list(used) == ["age"]
    assert "column 'ward' holds words and is left out" in warnings[0]
    with pytest.raises(InputError, match="no column can be used"):
        without_words({"ward": stats["ward"]}, {})


def test_sums_that_no_sites_can_have_are_refused() -> None:
    with pytest.raises(EnvironmentFailure, match="not plausible"):
        from_numbers([Fraction(-1)] * 8, 2, (), {})


@pytest.mark.parametrize("text", ["a", "a=", "=x", "a=x;a=y", "a=x||y"])
def test_words_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not COLUMN=WORD"):
        parse_words(text)


def secure_hospitals(folder: Path, **changed: Any) -> dict[int, Path]:
    """Three sites with tables, keys and a roster."""
    sites = hospitals(folder, **changed)
    write_identities(folder, NAMES)
    for file, name in zip(sites.values(), NAMES, strict=True):
        add_identity(file, folder, name)
    return sites


def test_tables_at_sites_are_standardised_by_the_moments_of_all_and_only_totals_are_known(tmp_path: Path) -> None:
    older = TABLE.replace("\n2", "\n7")
    given = {"classes": "ill,well", "rounds": 2, "test-prior": "natural"}
    secure = tmp_path / "secure"
    found = run_coordinator(Wire(secure_hospitals(secure, table=older)), secure_settings(secure, 3, **given))
    in_the_open = Wire(hospitals(tmp_path / "open", table=older))
    expected = run_coordinator(
        in_the_open, two_classes(tmp_path / "open", **{"test-prior": "ill=0.55,well=0.45"}) | {"rounds": 2}
    )
    specs = [read_json(folder / "run" / "run_spec.json")["spec"] for folder in (secure, tmp_path / "open")]
    assert specs[0]["test_prior"] == pytest.approx([0.55, 0.45])
    for column, other in zip(*(spec["schema"]["columns"] for spec in specs), strict=True):
        assert column == pytest.approx(other)
    assert float((weights(found) - weights(expected)).abs().max()) < 1e-4
    assert found.result.data == expected.result.data
    report = next((secure / "west" / "state").rglob("local_evaluation.json"))
    assert set(read_json(report)) == {"rows", "accuracy", "standard_error", "p_value"}


def test_a_site_whose_values_are_wrong_is_left_out_of_the_statistics(tmp_path: Path) -> None:
    wrong = TABLE.replace("\n21,", "\nsecret,")
    folder = tmp_path
    sites = secure_hospitals(folder)
    names = (*NAMES, "east")
    place = folder / "east"
    place.mkdir()
    (place / "rows.csv").write_text(wrong)
    (place / "priors.csv").write_text(PRIORS)
    (place / "site.toml").write_text('name = "east"\n[data]\ndata = "rows.csv"\npriors = "priors.csv"\n')
    for file in (folder / "roster.toml", *(folder / "keys").glob("*")):
        file.unlink()
    write_identities(folder, names)
    add_identity(place / "site.toml", folder, "east")
    given = {"classes": "ill,well", "rounds": 1, "start-seconds": 5.0}
    found = run_coordinator(Wire({**sites, 4: place / "site.toml"}), secure_settings(folder, 3, **given))
    assert found.history[0].clients == 3
    assert found.result.data.clients == 3
    assert "secret" not in " ".join(file.read_text() for file in (folder / "run").glob("*.json*"))
