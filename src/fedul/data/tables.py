"""Tables as users have them, block by block and never whole: CSV with any of the usual separators, and Parquet.

Every cell of a CSV is read as text; what is a number is decided for a whole column, by its schema.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fedul.errors import InputError, did_you_mean

ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".pq")
SEPARATORS = (",", ";", "\t", "|")
MISSING = ["", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null", "None", "?", "-", "."]
BLOCK_BYTES = 4 * 2**20
BLOCK_ROWS = 65_536
HEADER_BYTES = 2**20
DECIMAL_COMMAS = re.compile(rb'(?:^|;)\s*"?[+-]?\d*,\d+"?\s*(?:;|$)', re.MULTILINE)
WRONG_CELLS = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): ?(.*)")
MAGIC = {
    b"PK\x03\x04": "a zip archive or an Excel file",
    b"\xd0\xcf\x11\xe0": "an Excel file",
    b"\x1f\x8b": "compressed",
    b"BZh": "compressed",
    b"\xfd7zXZ": "compressed",
    b"(\xb5/\xfd": "compressed",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"%PDF": "a PDF",
    b"SQLite": "a database",
}


def table_paths(named: str) -> list[Path]:
    """The files that a user means: one, all tables of a folder, or those of a pattern with *."""
    path = Path(os.path.expanduser(named))
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.suffix.lower() in ENDINGS and each.is_file())
        if not found:
            raise InputError(f"{named}: a folder without tables; give .csv or .parquet files.")
        return found
    if glob.has_magic(named):
        found = sorted(Path(each) for each in glob.glob(str(path)) if os.path.isfile(each))
        if not found:
            raise InputError(f"{named}: no file has such a name.")
        return found
    raise InputError(f"{named}: there is no such file.")


@dataclass(frozen=True)
class TableFile:
    """One file of rows."""

    path: Path
    columns: tuple[str, ...]
    separator: str = ""  # of a CSV; empty for Parquet
    decimal_commas: bool = False  # some numbers have one, as far as the beginning of the file tells

    def check_has(self, columns: Sequence[str]) -> None:
        """Refuses a file that lacks a column, with the nearest ones it has."""
        for name in columns:
            if name not in self.columns:
                guess = did_you_mean(name, self.columns)
                has = f"{guess} It has" if guess else "; it has"
                raise InputError(f"{self.path}: there is no column '{name}'{has} {_listed(self.columns)}.")

    def blocks(self, columns: Sequence[str] | None = None, *, as_written: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows in order, with these columns alone; decimal commas are points, unless asked for as written."""
        wanted = list(self.columns if columns is None else columns)
        self.check_has(wanted)
        try:
            for block in self._csv(wanted) if self.separator else self._parquet(wanted):
                yield _with_points(block) if self.separator == ";" and not as_written else block
        except pa.ArrowInvalid as problem:
            raise _told(self.path, str(problem)) from None
        except UnicodeDecodeError:  # a message that quotes what is not text
            raise _told(self.path, "UTF-8") from None
        except OSError as problem:
            raise InputError(f"{self.path}: cannot be read ({_first_line(problem)}); get a whole copy of it.") from None

    def _csv(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        options = (
            pacsv.ReadOptions(column_names=list(self.columns), skip_rows=1, block_size=BLOCK_BYTES, use_threads=False),
            pacsv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types={name: pa.string() for name in wanted},
                include_columns=wanted,
                null_values=MISSING,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        try:
            with pacsv.open_csv(self.path, *options) as reader:
                yield from reader
        except pa.ArrowInvalid as problem:
            if "Empty CSV" not in str(problem) and "Could not skip initial" not in str(problem):  # a header alone
                raise

    def _parquet(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches(BLOCK_ROWS, columns=wanted)


def _with_points(block: pa.RecordBatch) -> pa.RecordBatch:
    """Decimal commas, which go with semicolons, as points."""
    pattern = r"^\s*([+-]?\d*),(\d+)\s*$"
    columns = [pc.replace_substring_regex(column, pattern, r"\1.\2") for column in block.columns]
    return pa.RecordBatch.from_arrays(columns, names=block.schema.names)


def open_table(path: Path) -> TableFile:
    """A file with its columns; what is no table is refused."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    try:
        with path.open("rb") as file:
            start = file.read(HEADER_BYTES)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}).") from None
    if not start:
        raise InputError(f"{path}: is empty.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet_file(path)
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
    _check_names(path, columns)
    return TableFile(path, columns, separator, separator == ";" and DECIMAL_COMMAS.search(start) is not None)


def _parquet_file(path: Path) -> TableFile:
    try:
        with pq.ParquetFile(path) as file:
            columns = tuple(file.schema_arrow.names)
    except (pa.ArrowException, OSError) as problem:
        raise InputError(
            f"{path}: not a whole Parquet file ({_first_line(problem)}); get a whole copy of it."
        ) from None
    _check_names(path, columns)
    return TableFile(path, columns)


def _check_names(path: Path, columns: Sequence[str]) -> None:
    for number, name in enumerate(columns, start=1):
        if not name:
            raise InputError(f"{path}: column {number} has no name; the first line must name all columns.")
    seen: set[str] = set()
    for name in columns:
        if name in seen:
            raise InputError(f"{path}: two columns are named '{name}'; rename one.")
        seen.add(name)


def _told(path: Path, problem: str) -> InputError:
    """What pyarrow found, in words for a person."""
    if wrong := WRONG_CELLS.search(problem):
        row, expected, found, text = wrong.groups()
        line = f", line {row}" if row else ""
        return InputError(f"{path}{line}: {found} cells for {expected} columns; mend the line ('{text[:40]}').")
    if "UTF8" in problem or "UTF-8" in problem:
        return InputError(f"{path}: is not UTF-8 text; save it as CSV in UTF-8.")
    return InputError(f"{path}: cannot be read ({problem.splitlines()[0][:150].rstrip('.:')}); get a whole copy of it.")


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)[:150].rstrip(".:")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
