"""Kinds of files that are not tables of text, by their first bytes."""

from __future__ import annotations

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
