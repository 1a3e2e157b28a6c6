"""Replies as lines of a file: CSV, JSON Lines, and the rows of Parquet. Pure.

Columns: rid, outcome, attempts, code, error, then the reply: as it is, or the requested
fields, one column each.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from onceq.model.element import Element, RequestOutcome, attempts_of

FIRST_COLUMNS: Final = ("rid", "outcome", "attempts", "code", "error")
REPLY: Final = "reply"
BASE64: Final = "base64:"
"""The prefix of a reply that is not text, in CSV and Parquet."""


class Format(Protocol):
    """How replies are written."""

    def header(self) -> bytes:
        """Returns the beginning of the file."""
        ...

    def lines(self, replies: Sequence[Element]) -> bytes:
        """Returns the replies, one on each line."""
        ...


def first_values(reply: Element) -> dict[str, Any]:
    """Returns what every reply has. attempts: see `attempts_of`."""
    outcome = reply.outcome or RequestOutcome.DONE
    return {
        "rid": reply.rid,
        "outcome": outcome.value,
        "attempts": attempts_of(reply.aborts, outcome),
        "code": reply.code,
        "error": reply.error,
    }


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A JSON object on each line; a JSON reply is in it as it is, any other in base64."""

    def header(self) -> bytes:
        """Nothing."""
        return b""

    def lines(self, replies: Sequence[Element]) -> bytes:
        """See Format."""
        return b"".join(self._line(reply) for reply in replies)

    def _line(self, reply: Element) -> bytes:
        values = first_values(reply)
        raw = as_json(reply.body)
        if raw is not None:
            values[REPLY] = msgspec.Raw(raw)
        elif reply.body:
            values["reply_base64"] = base64.b64encode(reply.body).decode()
        else:
            values[REPLY] = None
        return msgspec.json.encode(values) + b"\n"


@dataclass(frozen=True, slots=True)
class Csv:
    """CSV with a header. fields: of the reply, one column each; none: the reply, in one column."""

    fields: tuple[str, ...]

    def header(self) -> bytes:
        """The names of the columns."""
        return _csv_lines([columns(self.fields)])

    def lines(self, replies: Sequence[Element]) -> bytes:
        """See Format."""
        return _csv_lines([list(row(reply, self.fields).values()) for reply in replies])


@dataclass(frozen=True, slots=True)
class Rows:
    """What becomes Parquet: a JSON object on each line, with the columns that it will have."""

    fields: tuple[str, ...]

    def header(self) -> bytes:
        """Nothing."""
        return b""

    def lines(self, replies: Sequence[Element]) -> bytes:
        """See Format."""
        return b"".join(msgspec.json.encode(row(one, self.fields)) + b"\n" for one in replies)


def columns(fields: tuple[str, ...]) -> list[str]:
    """Returns the names of the columns."""
    return [*FIRST_COLUMNS, *(fields or (REPLY,))]


def row(reply: Element, fields: tuple[str, ...]) -> dict[str, Any]:
    """Returns a reply as a row, by column; all but `attempts` are texts."""
    values = first_values(reply)
    if not fields:
        return {**values, REPLY: _as_text(reply.body)}
    found: dict[str, msgspec.Raw] = {}
    raw = as_json(reply.body)
    if raw is not None and raw.startswith(b"{"):
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    return {**values, **{name: _field(found.get(name)) for name in fields}}


def as_json(body: bytes) -> bytes | None:
    """Returns a JSON body on one line; None if it is not JSON."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # In JSON an end of line can only be between tokens.
    return body.replace(b"\r", b" ").replace(b"\n", b" ").strip()


def _field(raw: msgspec.Raw | None) -> str | None:
    if raw is None:
        return None
    value = bytes(raw)
    if value.startswith(b'"'):
        return msgspec.json.decode(value, type=str)
    return None if value == b"null" else value.decode()


def _as_text(body: bytes) -> str | None:
    if not body:
        return None
    try:
        return (as_json(body) or body).decode()
    except UnicodeDecodeError:
        return BASE64 + base64.b64encode(body).decode()


def _csv_lines(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
