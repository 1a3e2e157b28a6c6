"""Replies as lines of a file: CSV, JSON Lines, and the rows of Parquet. Pure.

Columns: rid, outcome, attempts, code, error, then the reply: as it is, or the fields that are
asked for, a column each.
"""

from __future__ import annotations

import base64
import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from onceq.model.element import RequestOutcome, attempts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.model.element import Element

FIRST_COLUMNS: Final = ("rid", "outcome", "attempts", "code", "error")
REPLY: Final = "reply"
BASE64: Final = "base64:"
"""Before a reply that is no text, in CSV and Parquet."""


class Format(Protocol):
    """How replies are written."""

    def header(self) -> bytes:
        """Returns what the file begins with."""
        ...

    def lines(self, replies: Sequence[Element]) -> bytes:
        """Returns the replies, a line each."""
        ...


def first_values(reply: Element) -> dict[str, Any]:
    """Returns what is known of every reply. attempts: see `attempts_of`."""
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
    """A JSON object a line; a reply that is JSON stands in it as it is, another in base64."""

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
    """CSV with a header. fields: of the reply, a column each; none: the reply, one column."""

    fields: tuple[str, ...]

    def header(self) -> bytes:
        """The names of the columns."""
        return _csv_lines([columns(self.fields)])

    def lines(self, replies: Sequence[Element]) -> bytes:
        """See Format."""
        return _csv_lines([list(row(reply, self.fields).values()) for reply in replies])


@dataclass(frozen=True, slots=True)
class Rows:
    """What becomes Parquet: a JSON object a line, with the columns that it will have."""

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
    """Returns a reply as a row of texts, by column."""
    values = first_values(reply)
    if not fields:
        return {**values, REPLY: _as_text(reply.body)}
    found: dict[str, msgspec.Raw] = {}
    raw = as_json(reply.body)
    if raw is not None and raw.startswith(b"{"):
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    return {**values, **{name: _field(found.get(name)) for name in fields}}


def as_json(body: bytes) -> bytes | None:
    """Returns a body that is JSON, on one line; None for another."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # In JSON an end of line can only stand between tokens.
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
