"""Tables as users have them, read block by block: CSV with any of the usual separators, Parquet, and DataFrames.

Every cell of a CSV file is read as text. Whether a column holds numbers is decided for the whole column, by its schema.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fedul._utils.display import counted
from fedul.data.files.file_kinds import MAGIC
from fedul.data.files.schema.column_stats import as_words
from fedul.errors import InputError, did_you_mean, first_line, list_names

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
SEPARATORS = (",", ";", "\t", "|")
MISSING = ["", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null", "None", "?", "-", "."]
BLOCK_BYTES = 4 * 2**20
BLOCK_ROWS = 65_536
HEADER_BYTES = 2**20
DECIMAL_COMMAS = re.compile(rb'(?:^|;)\s*"?[+-]?\d*,\d+"?\s*(?:;|$)', re.MULTILINE)
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*%?\s*$")
WRONG_CELLS = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): ?(.*)")


@dataclass(frozen=True)
class Table(ABC):
    """Rows in named columns, read block by block.

    Parameters
    ----------
    source : str
        How messages name the table: the path of a file, or the argument that a DataFrame was passed as.
    columns : tuple of str
        Names of the columns, in order.
    """

    source: str
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for number, name in enumerate(self.columns, start=1):
            if not name:
                index = " (an index? pandas writes none with index=False)" if number == 1 else ""
                raise InputError(f"{self.source}: column {number} has no name{index}; name all columns.")
            if name in seen:
                raise InputError(f"{self.source}: two columns are named '{name}'; rename one.")
            seen.add(name)

    def check_has(self, columns: Sequence[str]) -> None:
        """Raise an InputError if a column is missing, with the most similar name that exists."""
        for name in columns:
            if name not in self.columns:
                guess = did_you_mean(name, self.columns)
                has = f"{guess} It has" if guess else "; it has"
                raise InputError(f"{self.source}: there is no column '{name}'{has} {list_names(self.columns)}.")

    def blocks(
        self, columns: Sequence[str] | None = None, *, as_written: bool = False, verbatim: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns alone.

        Decimal commas of a CSV file are replaced with points, unless `as_written`. The columns `verbatim` follow the
        others; in these, texts that usually stand for a missing value stay as they are too.
        """
        wanted = list(self.columns if columns is None else columns)
        self.check_has([*wanted, *verbatim])
        try:
            yield from self._read([*wanted, *verbatim], as_written, verbatim)
        except pa.ArrowInvalid as problem:
            raise self._damaged(str(problem)) from None
        except UnicodeDecodeError:  # from a message that quotes bytes which are not text
            raise self._damaged("UTF-8") from None
        except OSError as problem:
            raise self._damaged(first_line(problem)) from None

    @abstractmethod
    def _read(self, wanted: list[str], as_written: bool, verbatim: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield blocks of these columns; see `blocks`."""

    def describe_row(self, number: int) -> str:
        """Return where a row is, for messages; rows are counted from 0."""
        return f"{self.source}, row {number + 1}"

    def text_rows(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield where each row is, for messages, and its cells as text."""
        number = 0
        for block in self.blocks():
            columns = [as_words(column) if pa.types.is_temporal(column.type) else column for column in block.columns]
            for cells in zip(*(column.to_pylist() for column in columns), strict=True):
                texts = ("" if cell is None else str(cell) for cell in cells)
                yield self.describe_row(number), dict(zip(self.columns, texts, strict=True))
                number += 1

    def _damaged(self, problem: str) -> InputError:
        """Return an error for a problem that pyarrow or the system reported."""
        if wrong := WRONG_CELLS.search(problem):
            row, expected, found, text = wrong.groups()
            line = f", line {row}" if row else ""
            cells = f"{counted(int(found), 'cell')} for {counted(int(expected), 'column')}"
            return InputError(f"{self.source}{line}: {cells}; correct the line ('{text[:40]}').")
        if "UTF8" in problem or "UTF-8" in problem:
            return InputError(f"{self.source}: is not UTF-8 text; save it as CSV in UTF-8.")
        reason = problem.splitlines()[0][:150].rstrip(".:")
        return InputError(f"{self.source}: cannot be read ({reason}); get a complete copy of it.")


@dataclass(frozen=True)
class CsvTable(Table):
    """A CSV file with a header.

    Parameters
    ----------
    source, columns
        See `Table`.
    separator : str
        Character between cells.
    decimal_commas : bool
        Whether numbers in the first part of the file have decimal commas.
    """

    separator: str = ","
    decimal_commas: bool = False

    def _read(self, wanted: list[str], as_written: bool, verbatim: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = (
            pacsv.ReadOptions(column_names=list(self.columns), skip_rows=1, block_size=BLOCK_BYTES, use_threads=False),
            pacsv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types={name: pa.string() for name in wanted},
                include_columns=wanted,
                null_values=[""] if verbatim else MISSING,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        try:
            with pacsv.open_csv(self.source, *options) as reader:
                for block in reader:
                    block = missing_as_null(block, verbatim) if verbatim else block
                    yield _with_points(block, verbatim) if self.separator == ";" and not as_written else block
        except pa.ArrowInvalid as problem:
            if "Empty CSV" not in str(problem) and "Could not skip initial" not in str(problem):  # only a header
                raise

    def describe_row(self, number: int) -> str:
        """Return the line of a row, as an editor counts lines: the first one is the header."""
        try:
            with open(self.source, newline="", encoding="utf-8-sig", errors="replace") as file:
                reader = csv.reader(file, delimiter=self.separator)
                filled = (reader.line_num for cells in reader if cells)  # pyarrow skips empty lines too
                line = next(islice(filled, number + 1, None), number + 2)
        except csv.Error:  # a cell that is longer than this reader allows
            return super().describe_row(number)
        return f"{self.source}, line {line}"

    def text_rows(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the line of each row and its cells as they are written, decimal commas replaced with points."""
        try:
            with open(self.source, newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, delimiter=self.separator)
                next(reader)
                for cells in reader:
                    where = f"{self.source}, line {reader.line_num}"
                    if not any(cell.strip() for cell in cells):
                        continue
                    if len(cells) != len(self.columns):
                        counts = f"{counted(len(cells), 'cell')} for {counted(len(self.columns), 'column')}"
                        raise InputError(f"{where}: {counts}; correct the line.")
                    if self.separator == ";":
                        cells = [cell.replace(",", ".") if DECIMAL_COMMA.match(cell) else cell for cell in cells]
                    yield where, dict(zip(self.columns, cells, strict=True))
        except (OSError, UnicodeDecodeError, csv.Error) as problem:
            raise InputError(f"{self.source}: not a readable CSV file ({problem}); save it as CSV in UTF-8.") from None


class ParquetTable(Table):
    """A Parquet file."""

    def _read(self, wanted: list[str], as_written: bool, verbatim: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.source) as file:
            for block in file.iter_batches(BLOCK_ROWS, columns=wanted):
                yield missing_as_null(block.select(wanted), verbatim)


def missing_as_null(block: pa.RecordBatch, verbatim: Sequence[str] = ()) -> pa.RecordBatch:
    """Return a block in which texts that stand for a missing value ("NA", "?") are null, except in some columns."""
    columns = []
    for name, column in zip(block.schema.names, block.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.string())
        if pa.types.is_string(column.type) and name not in verbatim:
            column = pc.if_else(pc.is_in(column, pa.array(MISSING)), None, column)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=block.schema.names)


def table_paths(named: str) -> list[Path]:
    """Return the files that a name stands for: one file, all tables of a folder, or those that match a pattern."""
    path = Path(named).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix.lower() in SUFFIXES and each.is_file())
        problem = "a folder without tables; give .csv or .parquet files"
    elif glob.has_magic(named):
        files = sorted(Path(each) for each in glob.glob(str(path)) if os.path.isfile(each))
        problem = "no file matches this pattern; correct it"
    else:
        files, problem = [], "there is no such file; correct the path"
    if not files:
        raise InputError(f"{named}: {problem}.")
    return files


def open_tables(source: str | Table, *, index: str = "") -> Sequence[Table]:
    """Return the tables that a path, folder or pattern names, as `open_table` does; a table stands for itself."""
    return [source] if isinstance(source, Table) else [open_table(path, index=index) for path in table_paths(source)]


def open_table(path: Path, *, index: str = "") -> Table:
    """Return a file with its columns; an InputError says why it is not a table.

    Parameters
    ----------
    path : Path
        The file.
    index : str, optional
        Name for a first column that has none, as an index often has; without it such a file is refused.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; correct the path.")
    try:
        with path.open("rb") as file:
            start = file.read(HEADER_BYTES)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}); give a file that you may read.") from None
    if not start:
        raise InputError(f"{path}: is empty; give a table with a header and rows.")
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            with pq.ParquetFile(path) as parquet:
                return ParquetTable(str(path), tuple(parquet.schema_arrow.names))
        except (pa.ArrowException, OSError) as problem:
            raise InputError(
                f"{path}: not a complete Parquet file ({first_line(problem)}); get a complete copy of it."
            ) from None
    for magic, what in MAGIC.items():
        if start.startswith(magic):
            raise InputError(f"{path}: is {what}, not a CSV file; save it as CSV (UTF-8) or Parquet.")
    if b"\0" in start:
        raise InputError(f"{path}: is not text; give a CSV or Parquet file.")
    try:
        line = start.removeprefix(b"\xef\xbb\xbf").splitlines()[0].decode("utf-8")
    except (UnicodeDecodeError, IndexError):
        raise InputError(f"{path}: is not UTF-8 text; save it as CSV in UTF-8.") from None
    separator = max(SEPARATORS, key=line.count)
    try:
        columns = tuple(cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=separator)))
    except (csv.Error, StopIteration):
        raise InputError(f"{path}: its first line does not name columns; give a CSV with a header.") from None
    if not columns[0] and len(columns) > 1:
        columns = (index, *columns[1:])
    return CsvTable(str(path), columns, separator, separator == ";" and DECIMAL_COMMAS.search(start) is not None)


def _with_points(block: pa.RecordBatch, verbatim: Sequence[str]) -> pa.RecordBatch:
    """Return a block with decimal commas, which occur in files with semicolons, replaced with points."""
    pattern = r"^\s*([+-]?\d*),(\d+)\s*$"
    columns = [
        column if name in verbatim else pc.replace_substring_regex(column, pattern, r"\1.\2")
        for name, column in zip(block.schema.names, block.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=block.schema.names)
