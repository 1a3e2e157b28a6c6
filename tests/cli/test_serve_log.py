"""The log of `onceq serve`: text or JSON, every line of it, from every process, without secrets."""

from __future__ import annotations

import pytest

import onceq
from onceq import telemetry
from onceq.model import admin_ops
from tests.cli.parts import Cli
from tests.cli.serve_log_app import KEPT, NUMBERS
from tests.cli.test_serve import Service, service
from tests.events import Events, decoded, emits
from tests.parts import LIMIT_S, linked, wait_until

APP = "tests.cli.serve_log_app"
SECRET = "s3cr3t-hunter2"
KINDS = ("good", "raise", "reject", "retry", "unencodable", "sql", "commit", "die")


@pytest.fixture
def declared(qm: onceq.QueueManager) -> onceq.QueueManager:
    """The queue manager; the queues are there."""
    qm.declare(KEPT)
    qm.declare(NUMBERS)
    return qm


def fails(cli: Cli, qm: onceq.QueueManager, form: str) -> tuple[Service, str]:
    """Serves a request whose handler raises, twice; returns the service, and the eid."""
    with service(cli, f"{APP}:server", log=form) as running, qm.clerk("till", KEPT) as clerk:
        sent = clerk.send("o-1", {"kind": "raise"})
        assert clerk.receive(timeout_s=LIMIT_S).outcome is onceq.RequestOutcome.FAILED
        assert running.stop() == 0
    return running, str(sent.eid)


@emits(telemetry.Aborted, telemetry.ChildReady, telemetry.ServerBegan, telemetry.OnErrorFailed)
def test_a_handler_that_raises_is_one_line_in_json(
    cli: Cli, declared: onceq.QueueManager, events: Events
) -> None:
    """Each of its aborts; the child says it, and the first has the traceback."""
    running, eid = fails(cli, declared, "json")
    events.read(running.log)
    pid = next(one["pid"] for one in running.seen if one["event"] == "ready")
    aborted = events.of(telemetry.Aborted)
    assert [(one["attempt"], one["fate"]) for one in aborted] == [(1, "returned"), (2, "failed")]
    for one in aborted:
        assert (one["rid"], one["eid"], one["code"]) == ("o-1", eid, "ValueError")
        assert (one["pid"], one["level"], one["charge"]) == (pid, "warning", "charge")
    assert "serve_log_app.py" in aborted[0]["traceback"]
    assert "traceback" not in aborted[1]
    (ready,) = events.of(telemetry.ChildReady)
    assert (ready["pid"], ready["child"]) == (running.process.pid, pid)  # the supervisor says it


def test_a_handler_that_raises_is_one_line_in_text(cli: Cli, declared: onceq.QueueManager) -> None:
    running, eid = fails(cli, declared, "text")
    words = f"aborted queue=kept rid=o-1 eid={eid} attempt=%s code=ValueError charge=charge fate=%s"
    heads = [one.partition(" onceq.server.reporting: ")[2] for one in running.log]
    assert [one for one in heads if one.startswith("aborted")] == [
        words % (1, "returned"),
        words % (2, "failed"),
    ]
    assert running.log.count("    ValueError: it is bad") == 1


def secretive(cli: Cli) -> Cli:
    """The same repository, by a connection string with a password."""
    return Cli(f"{cli.url} password={SECRET}", cli.repository)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_stands_in_any_line(cli: Cli, declared: onceq.QueueManager, form: str) -> None:
    """Body, reply, checkpoint, properties, URL; whatever becomes of the request."""
    with (
        service(secretive(cli), f"{APP}:server", log=form, level="debug") as running,
        declared.clerk("till", KEPT, window=len(KINDS)) as clerk,
    ):
        for kind in KINDS:
            request = {"kind": kind, "secret": SECRET}
            clerk.send(kind, request, properties={"card": SECRET})
        for _ in KINDS:
            clerk.receive(SECRET.encode(), timeout_s=LIMIT_S)
        eid = declared.enqueue(onceq.Queue("numbers", bytes, int), SECRET.encode())
        wait_until(lambda: bool(declared.attempts(eid)))
        cut(cli)
        clerk.acknowledge(list(KINDS))
        clerk.transceive("again", {"kind": "good", "secret": SECRET}, timeout_s=LIMIT_S)
        assert running.stop() == 0
    assert SECRET not in "\n".join(running.log)
    assert len(running.log) > 2 * len(KINDS)
    for line in running.log if form == "json" else ():
        decoded(line)


def cut(cli: Cli) -> None:
    """Ends the sessions of all servers."""
    with linked(cli.url, cli.repository) as link:
        for one in link.perform(admin_ops.ListServers()):
            link.connection.execute("select pg_terminate_backend(%s)", [one.backend_pid])


@pytest.mark.usefixtures("declared")
def test_the_level_is_the_least_that_is_logged(cli: Cli) -> None:
    with service(cli, f"{APP}:server", log="json", level="warning") as running:
        assert running.stop() == 0
    assert running.log == []


def test_a_format_that_is_none_is_refused(cli: Cli) -> None:
    assert "--log-format" in cli("serve", f"{APP}:server", "--log-format", "xml", code=2).err
