"""What `onceq stream into` and `onceq stream relay` do: bridges run until they are told to stop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onceq
from onceq import streams
from onceq.cli.config import choose
from onceq.cli.exits import OK
from onceq.cli.serving import Log, run_until_signalled
from onceq.cli.units import session_of
from onceq.errors import InvalidValue
from onceq.server.loading import load
from onceq.streams.bridging import Kind

if TYPE_CHECKING:
    from onceq.cli.command import Invocation
    from onceq.cli.streams import Relayed


def into(invoked: Invocation, spec: str, log: Log) -> int:
    """Runs a bridge of the user's, made by `streams.into`."""
    log.begin()
    found = load(spec, "bridge")
    if not isinstance(found, streams.Bridge) or found.kind is not Kind.INTO:
        what = f"a {found.kind}" if isinstance(found, streams.Bridge) else type(found).__name__
        raise InvalidValue(
            f"{spec} is {what}, and no bridge into a database: name what `streams.into` has made"
        )
    return _run(invoked, found, log)


def relay(invoked: Invocation, queue: str, topic: str, relayed: Relayed, *, log: Log) -> int:
    """Runs a relay. What is in the queue is passed on as it is, whatever its type."""
    log.begin()
    made = streams.relay(
        onceq.Queue(queue, bytes, bytes),
        streams.Topic(topic),
        name=relayed.name,
        stores=relayed.stores,
        session_id=session_of(relayed.source, "--source"),
        listen=relayed.listen,
        batch=relayed.batch,
        accept_loss=relayed.accept_loss,
        certificates=relayed.certificates,
    )
    return _run(invoked, made, log)


def _run(invoked: Invocation, bridge: streams.Bridge, log: Log) -> int:
    """Runs a bridge where it was made for, or where the command line says."""
    own = bridge.database
    target = choose(invoked.url or own.url, invoked.repository or own.repository, os.environ)
    what = {"bridge": bridge.name, "kind": bridge.kind}

    def run() -> None:
        _tell(invoked, "started", what)
        log.hint(f"onceq: {bridge.kind} {bridge.name!r} runs; Ctrl-C stops, twice at once")
        bridge.run(**target.given)

    run_until_signalled(run, bridge.stop)
    _tell(invoked, "stopped", what)
    log.hint(f"onceq: {bridge.kind} {bridge.name!r} has stopped")
    return OK


def _tell(invoked: Invocation, event: str, what: dict[str, str]) -> None:
    if invoked.as_json:
        invoked.output.line({"event": event, **what})
