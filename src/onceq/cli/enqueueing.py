"""`onceq enqueue`: a request that wants no reply, from the command line or standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import typer

import onceq
from onceq.cli.command import Invocation
from onceq.cli.requests import as_time
from onceq.errors import InvalidValue
from onceq.model.reports import ReportEvent, Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The attributes of the new element."""

    rid: Annotated[
        str | None, typer.Option(help="The request's id in lookups; default: its eid.")
    ] = None
    priority: Annotated[int, typer.Option(min=0, max=9, help="9 is served first.")] = 4
    not_before: Annotated[
        str | None, typer.Option(help="Not served before this time: 2026-01-31T12:00:00+01:00.")
    ] = None
    expires_at: Annotated[
        str | None, typer.Option(help="When it expires: 2026-01-31T12:00:00+01:00.")
    ] = None
    correlation_id: Annotated[str | None, typer.Option(help="A correlation id.")] = None
    properties: Annotated[str | None, typer.Option(help="A JSON object.")] = None
    message_id: Annotated[
        str | None, typer.Option(help="What you call this message; default: its eid.")
    ] = None
    reply_to: Annotated[
        str | None, typer.Option(help="The queue where you wait for an answer.")
    ] = None
    scratch: Annotated[
        str | None, typer.Option(help="The scratch pad that travels along: a JSON object.")
    ] = None
    report_to: Annotated[
        str | None, typer.Option(help="The queue for reports; say of what by --report.")
    ] = None
    report: Annotated[
        list[ReportEvent] | None, typer.Option(help="Report this event; again for another.")
    ] = None
    content_type: Annotated[
        str | None,
        typer.Option(help="Of a --raw body, with its code page: text/plain; charset=cp037."),
    ] = None

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes in the queue manager's form. InvalidValue."""
        return {
            "rid": self.rid,
            "priority": self.priority,
            "not_before": as_time("--not-before", self.not_before),
            "expires_at": as_time("--expires-at", self.expires_at),
            "correlation_id": self.correlation_id,
            "properties": _json_object("--properties", self.properties),
            "message_id": self.message_id,
            "reply_to": self.reply_to,
            "scratch": _json_object("--scratch", self.scratch),
            "content_type": self.content_type,
            "reports": _reports(self.report_to, self.report or []),
        }


def enqueue(
    invoked: Invocation,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")],
    body: Annotated[
        str, typer.Argument(metavar="[BODY]", help="The request; - reads it from standard input.")
    ] = "-",
    *,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send the body's bytes as they are, not as JSON.")
    ] = False,
    how: How,
) -> None:
    """Enqueue a request that wants no reply; it is durable when its eid is printed.

    If you want the reply, use `onceq submit` or a clerk.
    """
    attributes = how.attributes
    if how.content_type is not None and not raw:
        raise InvalidValue("--content-type goes with --raw: without it the body is JSON in UTF-8")
    content = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")
    with invoked.open() as qm:
        if raw:
            eid = qm.enqueue(onceq.Queue(queue, bytes, bytes), content, **attributes)
        else:
            request = msgspec.Raw(checked_json(content))
            eid = qm.enqueue(onceq.Queue(queue, msgspec.Raw, bytes), request, **attributes)
    invoked.output.item({"queue": queue, "eid": eid})


def checked_json(content: bytes) -> bytes:
    """Returns a text if it is JSON. InvalidValue."""
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise InvalidValue(
            f"the body is not JSON: {error} (a JSON text has quotes; --raw sends bytes as they are)"
        ) from None
    return content


def _reports(to: str | None, events: list[ReportEvent]) -> Reports | None:
    if to is None and not events:
        return None
    if to is None:
        raise InvalidValue("--report says of what, and --report-to the queue: give both")
    return Reports(to, **{one.value: True for one in events})


def _json_object(option: str, text: str | None) -> Mapping[str, Any] | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidValue(f"{option} is a JSON object, not {text!r:.80}: {error}") from None
