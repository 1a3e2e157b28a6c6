"""What the tests of `onceq stream into` run: bridges, made when their process is started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import onceq
from onceq import streams

if TYPE_CHECKING:
    import psycopg

LINES = streams.Topic("lines")
STORES = os.environ["STORES"]
SENDER = 0x7E1


def book(
    messages: list[streams.Message[bytes]],
    context: streams.IntoContext[psycopg.Connection[Any]],
) -> None:
    """Writes a row for each message into the table that is named by the environment."""
    table = os.environ["BOOKED"]
    for one in messages:
        row = (one.number, one.value.decode())
        context.connection.execute(f"insert into {table} values (%s, %s)".encode(), row)


def made(**given: Any) -> streams.Bridge:
    return streams.into(LINES, book, name="ledger", at=STORES, source_session_id=SENDER, **given)


ledger = made()
elsewhere = made(repository="elsewhere")
relay = streams.relay(
    onceq.Queue("out", bytes, bytes), LINES, name="out", stores=STORES, session_id=SENDER
)
