"""Statistics of the rows of all sites as one secure sum: what the schema, the class mix and the report need.

In the open, every site sends the moments of its columns and its words with their counts. Here sites first send the
names of their columns only. Then each sends a vector of numbers for these columns, of which the coordinator learns the
sum.
Words are not numbers, and a word that one site has would say so: the settings of the coordinator list the words of a
column (`words`), and sites count these, yes and no, and all others together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedul.core import Matrix, UnlabeledSets, prior_ranks
from fedul.data.files.schema.column_problems import column_problem
from fedul.data.files.schema.column_stats import ColumnStats
from fedul.data.files.schema.table import NO, YES
from fedul.engines.flower.secure.contributions import NUMBERS
from fedul.engines.flower.secure.exact_sums import exact_field
from fedul.errors import EnvironmentFailure, InputError
from fedul.privacy.secure_aggregation.layout import VectorLayout

Words = Mapping[str, Sequence[str]]
"""Words by column."""
COUNTS = ("sites", "rows", "held_out_rows", "sets", "labelled_rows", "identifying_sites")
MOMENTS = ("rows", "missing", "numbers", "sum", "squares", "fractional_sites", "odd_sites", "yes", "no", "others")
LARGEST = 1e18
"""Largest absolute value in a column of numbers."""


@dataclass(frozen=True, eq=False)
class SiteTotals:
    """Totals over sites; what one site sends is of the same form.

    Parameters
    ----------
    sites, rows, held_out_rows, sets, labelled_rows : int
        Number of sites, of training and held-out rows, of sets, and of rows whose class their site knows.
    identifying_sites : int
        Sites whose class priors alone tell all classes apart.
    class_rows : ndarray of shape (K,)
        Training rows by class, as the class priors say.
    columns : mapping of str to ColumnStats
        Statistics of the columns of a table.
    """

    sites: int
    rows: int
    held_out_rows: int
    sets: int
    labelled_rows: int
    identifying_sites: int
    class_rows: Matrix
    columns: Mapping[str, ColumnStats]

    @classmethod
    def of_client(cls, client: UnlabeledSets, columns: Mapping[str, ColumnStats]) -> SiteTotals:
        """Return the statistics of one site."""
        per_set = np.bincount(client.train.sets.numpy(), minlength=len(client.priors))
        return cls(
            sites=1,
            rows=len(client.train),
            held_out_rows=len(client.held_out),
            sets=len(client.priors),
            labelled_rows=client.labelled_rows,
            identifying_sites=int(prior_ranks([client.priors])[0] == client.priors.shape[1]),
            class_rows=per_set @ client.priors,
            columns=columns,
        )

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of sites, rows and sets by name."""
        return {name: getattr(self, name) for name in COUNTS}

    @property
    def class_mix(self) -> Matrix:
        """Class mix of the training rows (K,)."""
        mix: Matrix = self.class_rows / self.class_rows.sum()
        return mix


def statistics_layout(classes: int, columns: Sequence[str], words: Words, sites: int) -> VectorLayout:
    """Return the layout of the numbers that `to_numbers` returns, summed over at most this many sites."""
    count = len(COUNTS) + classes + sum(len(MOMENTS) + len(words.get(name, ())) for name in columns)
    return VectorLayout((exact_field(NUMBERS, count),), sites)


def to_numbers(site: SiteTotals, columns: Sequence[str], words: Words) -> list[float | Fraction]:
    """Return the statistics of a site as numbers that can be summed.

    Raises
    ------
    InputError
        If a column cannot be used; the others would have its values in their schema.
    """
    numbers: list[float | Fraction] = [getattr(site, name) for name in COUNTS]
    numbers += [float(count) for count in site.class_rows]
    for name in columns:
        numbers += _column_numbers(name, site.columns[name], words.get(name, ()))
    return numbers


def from_numbers(numbers: Sequence[Fraction], classes: int, columns: Sequence[str], words: Words) -> SiteTotals:
    """Return the totals that sums of `to_numbers` stand for.

    Raises
    ------
    EnvironmentFailure
        If they cannot be the totals of sites that follow the protocol.
    """
    values = iter(numbers)
    counts = {name: int(next(values)) for name in COUNTS}
    class_rows = np.array([float(next(values)) for _ in range(classes)])
    totals = {name: _column_stats(values, words.get(name, ())) for name in columns}
    if min(counts.values()) < 0 or counts["rows"] < 1 or not class_rows.sum() > 0 or class_rows.min() < 0:
        raise EnvironmentFailure("the sums of the sites' statistics are not plausible; a site sent wrong ones.")
    return SiteTotals(**counts, class_rows=class_rows, columns=totals)


def without_words(columns: Mapping[str, ColumnStats], words: Words) -> tuple[dict[str, ColumnStats], list[str]]:
    """Return the columns that can be used, and a sentence for each column of words that nobody has listed."""
    used, warnings = {}, []
    for name, stats in columns.items():
        if stats.rest and name not in words:
            warnings.append(
                f"column '{name}' holds words and is left out: sites do not disclose words under secure aggregation; "
                "list them in the setting words to use it."
            )
        else:
            used[name] = stats
    if not used and columns:
        raise InputError(f"no column can be used as a feature; {' '.join(warnings)}")
    return used, warnings


def _column_numbers(name: str, stats: ColumnStats, listed: Sequence[str]) -> list[float | Fraction]:
    if problem := column_problem(stats):
        raise InputError(f"column '{name}': {problem}")
    if stats.numbers and max(abs(stats.low), abs(stats.high)) > LARGEST:
        raise InputError(f"column '{name}' has values above {LARGEST:g}; correct them, or ignore the column.")
    mean, squares = Fraction(stats.mean), Fraction(stats.squares)
    words = {word: count for word, count in stats.words.items() if word not in listed}
    yes, no = (sum(count for word, count in words.items() if word.casefold() in which) for which in (YES, NO))
    known = [stats.words.get(word, 0) for word in listed]
    others = stats.present - stats.numbers - yes - no - sum(known)
    fractional, odd = not stats.whole, bool(stats.strange)
    moments = [stats.numbers * mean, squares + stats.numbers * mean**2]
    return [stats.rows, stats.missing, stats.numbers, *moments, fractional, odd, yes, no, others, *known]


def _column_stats(values: Iterator[Fraction], listed: Sequence[str]) -> ColumnStats:
    total = {name: next(values) for name in MOMENTS}
    words = {word: int(next(values)) for word in listed}
    yes_no = {"yes": int(total["yes"]), "no": int(total["no"])}
    present = {word: count for word, count in {**yes_no, **words}.items() if count > 0}
    numbers = max(int(total["numbers"]), 1)
    mean = total["sum"] / numbers
    squares = float(max(total["squares"] - numbers * mean**2, Fraction(0)))
    deviation = (squares / numbers) ** 0.5
    return ColumnStats(
        rows=int(total["rows"]),
        missing=int(total["missing"]),
        numbers=int(total["numbers"]),
        mean=float(mean),
        squares=squares,
        low=float(mean) - deviation,
        high=float(mean) + deviation,
        whole=not total["fractional_sites"],
        words=present,
        rest=total["others"] > 0,
        strange="values that are neither numbers nor words" if total["odd_sites"] else "",
    )


def parse_words(text: str) -> dict[str, tuple[str, ...]]:
    """Return the words of columns.

    >>> parse_words("smoker=never|former|current; ward=A|B")
    {'smoker': ('never', 'former', 'current'), 'ward': ('A', 'B')}
    """
    words: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        column, equals, listed = part.partition("=")
        values = tuple(dict.fromkeys(word.strip() for word in listed.split("|")))
        if not equals or not column.strip() or "" in values or column.strip() in words:
            raise InputError(f"words: '{part[:60]}' is not COLUMN=WORD|WORD, each column once; correct it.")
        words[column.strip()] = values
    return words
