"""Rows of a file, and what makes one a request: its rid and its body. Pure.

Used by the readers of the three formats and by `submit`. A row that cannot be a request is a
value too: it goes to the rejects, and the others go on. A row keeps its source, the text that
it was read from, for the rejects.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from onceq.errors import InvalidName, OnceqError
from onceq.model import names

LINE: Final = "line"
"""The value of --rid if a row is named by its line in the file."""
_NAME_BYTES_MAX: Final = 120
"""How many of a rid's 200 bytes are left for the file's name, beside digest and row number."""
_NOT_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f:]")
_FIELD: Final = re.compile(r"at `\$\.([^.\[`]+)|required field `([^`]+)`")
"""How the decoder names a field of a row."""
_LINE_RID: Final = re.compile(r"([^:]*):([0-9a-f]{64}):[0-9]+")


@dataclass(frozen=True, slots=True)
class Record:
    """A row as it was read. number: its place in the file, from 1 on. values: by column."""

    number: int
    values: Mapping[str, Any]
    body: bytes
    source: str | bytes


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be a request, and why. column: the one at fault; None: the row is."""

    number: int
    reason: str
    source: str | bytes
    column: str | None = None

    def line(self) -> bytes:
        """Returns it as a line of the rejects: a JSON object."""
        raw = self.source
        if isinstance(raw, str):  # bytes that are not UTF-8 were let through as surrogates
            raw = raw.encode("utf-8", "surrogateescape")
        raw = raw.rstrip(b"\r\n")
        values: dict[str, Any] = {"row": self.number, "column": self.column, "reason": self.reason}
        try:
            values["record"] = raw.decode()
        except UnicodeDecodeError:
            values["record_base64"] = base64.b64encode(raw).decode()
        return msgspec.json.encode(values) + b"\n"


@dataclass(frozen=True, slots=True)
class Row:
    """A row that can be sent."""

    number: int
    rid: str
    body: bytes
    source: str | bytes


def file_prefix(file_name: str) -> str:
    """Returns the prefix of the rids of a file's rows: its name, shortened and without ':'."""
    plain = _NOT_IN_NAMES.sub("_", file_name.encode("utf-8", "replace").decode())
    return plain.encode()[:_NAME_BYTES_MAX].decode("utf-8", "ignore") + ":"


def digest_in(rid: str, prefix: str) -> str | None:
    """Returns the file's digest in a rid made by `line`; None if it is not such a rid."""
    found = _LINE_RID.fullmatch(rid)
    return found[2] if found and found[1] + ":" == prefix else None


def by_line(prefix: str, sha256: str) -> Callable[[Record], str]:
    """Returns a function that names a row by its file and its place there."""
    return lambda record: f"{prefix}{sha256}:{record.number}"


def by_column(column: str) -> Callable[[Record], str]:
    """Returns a function that names a row by the value in a column: a text or a whole number."""

    def rid(record: Record) -> str:
        value = record.values.get(column)
        if isinstance(value, Decimal) and value == value.to_integral_value():
            return format(value, "f")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise InvalidName(f"column {column!r} holds no text and no whole number: {value!r}")
        return str(value)

    return rid


class Checker:
    """Makes rows from records. column: the one that names them; None: their place does.

    decode: from a body to the request's value, as any server does; None: the type is not known
    here.
    """

    def __init__(
        self,
        rid_of: Callable[[Record], str],
        body_bytes_max: int,
        column: str | None,
        decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._rid_of = rid_of
        self._decode = decode
        self._body_bytes_max = body_bytes_max
        self._column = column

    def check(self, record: Record) -> Row | BadRow:
        """Returns the request that a record is, or why it is not one."""
        try:
            rid = names.check_id("rid", self._rid_of(record))
        except OnceqError as error:
            return BadRow(record.number, str(error), record.source, self._column)
        if len(record.body) > self._body_bytes_max:
            size = f"{len(record.body)} bytes; the queue takes at most {self._body_bytes_max}"
            return BadRow(record.number, f"the row has {size}", record.source)
        try:
            if self._decode is not None:
                self._decode(record.body)
        except OnceqError as error:
            return BadRow(record.number, str(error), record.source, _field_in(str(error)))
        return Row(record.number, rid, record.body, record.source)


def _field_in(reason: str) -> str | None:
    """Returns the field at fault, according to the decoder's message."""
    found = list(_FIELD.finditer(reason))
    return (found[-1][1] or found[-1][2]) if found else None
