"""Readers: CSV, JSON Lines and Parquet files as records.

Used by `submit`. A row that cannot be read is a BadRow; a file that cannot be, a FileMismatch.
Values of CSV are texts, and are sent as such: the decoder of requests turns them into numbers and
dates by the declared type, wherever they are taken. JSON Lines are sent as they are, byte for
byte. In Parquet, decimals, dates and times become texts, so that no digit is lost.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import io
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, Self

import msgspec

from onceq.errors import FileMismatch, InvalidValue
from onceq.files.rows import BadRow, Record
from onceq.manager.arrow import require_arrow
from onceq.model.code_pages import JSON, JSON_OF_TEXTS

PARQUET_ROWS: Final = 1000
LINE_BYTES_MAX: Final = 268_435_456
"""The longest line of JSON Lines: the largest body that any queue takes."""
BOM: Final = b"\xef\xbb\xbf"
OTHER_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


class Reader(Protocol):
    """A file open for reading. total, position: of its size, in bytes or rows, for progress.

    content_type: of the bodies made from its rows.
    """

    content_type: str
    total: int
    columns: tuple[str, ...] | None

    @property
    def position(self) -> int:
        """How far reading has come."""
        ...

    def records(self, skip: int = 0) -> Iterator[Record | BadRow]:
        """Yields every row once, in order, without those up to number `skip`."""
        ...


def digest(path: Path) -> str:
    """Returns the sha256 of a file, in hexadecimal. FileNotFoundError and other OSErrors."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def open_reader(path: Path) -> Generator[Reader]:
    """Opens a file by its suffix. InvalidValue, FileMismatch, MissingExtra, OSError."""
    kind = READERS.get(path.suffix.lower())
    if kind is None:
        raise InvalidValue(
            f"{path.name}: what ends in {path.suffix!r} is not read; "
            f"one of {', '.join(READERS)} is: rename or convert it"
        )
    with path.open("rb") as file:
        if file.peek(2)[:2] in OTHER_BOMS:
            raise FileMismatch(f"{path} is UTF-16 or UTF-32, not UTF-8: convert it")
        yield kind(file, path)


def require_column(reader: Reader, column: str, path: Path) -> None:
    """Refuses a file without the column that names its rows. FileMismatch; nothing happened."""
    if reader.columns is not None and column not in reader.columns:
        known = ", ".join(reader.columns)
        raise FileMismatch(
            f"{path} has no column {column!r}; it has {known}: choose one, or `line`"
        )


class _Lines:
    """The lines of a text; it remembers those that made up a row."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self._taken: list[str] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self._text)
        self._taken.append(line)
        return line

    def row(self) -> str:
        """Returns the lines since the previous row, and forgets them."""
        text = "".join(self._taken)
        self._taken.clear()
        return text


class CsvReader:
    """A CSV file with a header, comma separated, UTF-8."""

    content_type: str = JSON_OF_TEXTS

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        self.total = path.stat().st_size
        self._file = file
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self._lines = _Lines(text)
        self._rows = csv.reader(self._lines, strict=True)
        self.columns: tuple[str, ...] | None = self._header(path)

    @property
    def position(self) -> int:
        """Bytes."""
        return self._file.tell()

    def _header(self, path: Path) -> tuple[str, ...]:
        try:
            header = next(self._rows, None)
        except csv.Error as error:
            raise FileMismatch(f"{path}: its header is not CSV: {error}") from None
        if not header:
            raise FileMismatch(f"{path} is empty: its first line must name the columns")
        if len(set(header)) < len(header) or "" in header:
            raise FileMismatch(f"{path}: a column's name is empty or stands twice: {header}")
        if any(_not_utf8(name) for name in header):
            raise FileMismatch(f"{path}: its header is not UTF-8: convert it")
        return tuple(header)

    def records(self, skip: int = 0) -> Iterator[Record | BadRow]:
        """Yields rows; blank lines do not count."""
        number = 0
        names = self.columns or ()
        self._lines.row()
        while True:  # until the end of the file
            try:
                fields = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                number += 1
                source = self._lines.row()
                if number > skip:
                    yield BadRow(number, f"not CSV: {error}", source)
                continue
            source = self._lines.row()
            number += bool(fields)
            if fields and number > skip:
                yield _csv_record(number, names, fields, source)


def _csv_record(
    number: int, names: tuple[str, ...], fields: list[str], source: str
) -> Record | BadRow:
    if len(fields) != len(names):
        return BadRow(number, f"{len(fields)} fields, but the header names {len(names)}", source)
    if not source.isascii():
        for name, field in zip(names, fields, strict=True):
            if _not_utf8(field):
                return BadRow(number, "not UTF-8", source, name)
    values = dict(zip(names, fields, strict=True))
    return Record(number, values, msgspec.json.encode(values), source)


def _not_utf8(text: str) -> bool:
    """Returns whether a text holds bytes that were not UTF-8, which the reading let through."""
    return not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text)


class JsonLinesReader:
    """A file with one JSON object on each line, UTF-8. A row's number is that of its line."""

    content_type: str = JSON

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        self.total = path.stat().st_size
        self.columns: tuple[str, ...] | None = None
        self._file = file

    @property
    def position(self) -> int:
        """Bytes."""
        return self._file.tell()

    def records(self, skip: int = 0) -> Iterator[Record | BadRow]:
        """Yields rows; a blank line is none, though it has a number."""
        number = 0
        while line := self._file.readline(LINE_BYTES_MAX + 2):
            number += 1
            if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                self._pass_over()
                if number > skip:
                    yield BadRow(number, f"the line has more than {LINE_BYTES_MAX} bytes", b"")
                continue
            line = line.removeprefix(BOM).strip() if number == 1 else line.strip()
            if line and number > skip:
                yield _json_record(number, line)

    def _pass_over(self) -> None:
        while rest := self._file.readline(65_536):
            if rest.endswith(b"\n"):
                return


def _json_record(number: int, line: bytes) -> Record | BadRow:
    try:
        return Record(number, msgspec.json.decode(line, type=dict[str, Any]), line, line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return BadRow(number, f"not a JSON object: {error}", line)


class ParquetReader:
    """A Parquet file; one batch of rows is in memory at a time."""

    content_type: str = JSON

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        require_arrow()
        arrow: Any = importlib.import_module("pyarrow")  # without types
        parquet: Any = importlib.import_module("pyarrow.parquet")
        self._damaged: type[Exception] = arrow.ArrowException
        self._path = path
        try:
            self._parquet: Any = parquet.ParquetFile(file)
            self.total = int(self._parquet.metadata.num_rows)
            self.columns: tuple[str, ...] | None = tuple(self._parquet.schema_arrow.names)
        except (self._damaged, OSError, ValueError) as error:  # ValueError: texts not in UTF-8
            raise FileMismatch(f"{path} is not a Parquet file: {error}") from None
        self._number = 0

    @property
    def position(self) -> int:
        """Rows."""
        return self._number

    def records(self, skip: int = 0) -> Iterator[Record | BadRow]:
        """Yields rows."""
        try:
            for batch in self._parquet.iter_batches(batch_size=PARQUET_ROWS):
                if self._number + batch.num_rows <= skip:
                    self._number += batch.num_rows
                    continue
                for values in batch.to_pylist():
                    self._number += 1
                    if self._number > skip:
                        yield _parquet_record(self._number, values)
        except (self._damaged, OSError, ValueError) as error:
            raise FileMismatch(
                f"{self._path} cannot be read beyond row {self._number}: {error}"
            ) from None


def _parquet_record(number: int, values: dict[str, Any]) -> Record | BadRow:
    try:
        body = msgspec.json.encode(values, enc_hook=str)
    except (TypeError, ValueError, RecursionError) as error:
        return BadRow(number, f"not to be said in JSON: {error}", repr(values))
    return Record(number, values, body, body)


READERS: Final[dict[str, type[CsvReader | JsonLinesReader | ParquetReader]]] = {
    ".csv": CsvReader,
    ".jsonl": JsonLinesReader,
    ".ndjson": JsonLinesReader,
    ".parquet": ParquetReader,
}
