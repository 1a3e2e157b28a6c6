"""`onceq enqueue`, `request show --body`, and tables on a terminal of 80 columns."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import onceq
from onceq.cli.main import make_app
from tests.cli.parts import run_here
from tests.cli.terminals import open_terminal
from tests.parts import serving, wait_until

if TYPE_CHECKING:
    from tests.cli.parts import Cli

JSON = onceq.Queue("orders", dict, bytes)


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    qm.declare(JSON)


def test_what_was_enqueued_is_the_request_that_a_server_gets(
    cli: Cli, qm: onceq.QueueManager
) -> None:
    words = ("--rid", "4711", "--priority", "7", "--properties", '{"source": "shop"}')
    eid = cli.json("enqueue", "orders", '{"cents": 5}', *words).item["eid"]
    element = qm.dequeue("orders")
    assert element is not None
    assert str(element.eid) == eid
    assert (element.body, element.rid, element.priority) == (b'{"cents": 5}', "4711", 7)
    assert element.properties == {"source": "shop"}
    assert JSON.decode_request(element.body) == {"cents": 5}


def test_attributes_are_given_and_shown(cli: Cli, qm: onceq.QueueManager) -> None:
    words = ("--rid", "1", "--message-id", "m", "--reply-to", "answers", "--scratch", '{"a": 1}')
    cli("enqueue", "orders", "{}", *words)
    (shown,) = cli.json("request", "show", "1").lines
    wanted = {"type": "datagram", "message_id": "m", "reply_to": "answers", "scratch": {"a": 1}}
    assert {name: shown[name] for name in wanted} == wanted
    assert (shown["content_type"], shown["code_page"]) == ("application/json", "utf-8")
    qm.declare(onceq.Queue("acks", onceq.Report, bytes))
    cli("enqueue", "orders", "{}", "--report-to", "acks", "--report", "arrival")
    report = qm.dequeue("acks")
    assert report is not None
    assert report.properties == {"onceq_report": "arrival"}
    page = "text/plain; charset=cp037"
    eid = cli.json("enqueue", "orders", "--raw", "x", "--content-type", page).item["eid"]
    assert f"content_type    {page}" in cli("request", "show", eid).out
    qm.kill(uuid.UUID(eid))
    assert "content_type" not in cli.json("request", "show", eid).item


def test_a_body_comes_from_standard_input_as_it_is(cli: Cli, qm: onceq.QueueManager) -> None:
    words = ["--url", cli.url, "--repository", cli.repository, "enqueue", "orders", "--raw"]
    answer = CliRunner().invoke(make_app(), words, input=b"\x00\xff\n")
    assert answer.exit_code == 0, answer
    element = qm.dequeue("orders")
    assert element is not None
    assert element.body == b"\x00\xff\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("orders", "ann"), "the body is not JSON"),
        (("orders", "{}", "--properties", "[1]"), "--properties is a JSON object"),
        (("orders", "{}", "--not-before", "soon"), "--not-before is a time like"),
        (("orders", "{}", "--scratch", "[1]"), "--scratch is a JSON object"),
        (("orders", "{}", "--report", "arrival"), "--report says of what, and --report-to"),
        (("orders", "{}", "--report-to", "acks"), "no report is asked for"),
        (("orders", "{}", "--reply-to", "reply-7"), "a client's own reply queue"),
        (("orders", "{}", "--content-type", "text/plain"), "--content-type goes with --raw"),
        (("orders", "{}", "--properties", '{"onceq_x": 1}'), "'onceq_x' is not a property"),
        (("or ders", "{}"), "queue name 'or ders' is not valid"),
    ],
)
def test_what_is_no_request_is_refused(
    cli: Cli, qm: onceq.QueueManager, words: tuple[str, ...], said: str
) -> None:
    assert said in cli("enqueue", *words, code=2).err
    assert qm.show("orders").depth == 0


def test_an_unknown_queue_is_not_found(cli: Cli) -> None:
    assert '"other" does not exist' in cli("enqueue", "other", "{}", code=3).err


def test_bodies_are_shown_when_asked_for(cli: Cli) -> None:
    cli("enqueue", "orders", '{"name": "ann"}', "--rid", "1")
    assert "ann" not in cli("request", "show", "1").out
    assert '{"name": "ann"}' in cli("request", "show", "1", "--body").out
    cli("enqueue", "orders", "--raw", "a\nb", "--rid", "2")
    assert "3 bytes, base64: YQpi" in cli("request", "show", "2", "--body").out


def test_the_version_needs_no_command() -> None:
    assert run_here("--version").out == run_here("version").out


def on_a_terminal(cli: Cli, *words: str) -> str:
    """What a terminal of 80 columns is shown."""
    ours, theirs, environment = open_terminal(80)
    process = subprocess.Popen(
        [sys.executable, "-m", "onceq.cli.main", *words],
        env={**cli.environment(), **environment},
        stdout=theirs,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that nobody writes there any more
        while more := os.read(ours, 65536):
            shown += more
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


def test_eids_are_whole_on_a_terminal_of_80_columns(cli: Cli, qm: onceq.QueueManager) -> None:
    eids = [qm.enqueue(JSON, {"n": n}, rid=f"request-{n}") for n in range(2)]
    for eid in eids:
        qm.kill(eid)
    shown = on_a_terminal(cli, "request", "find")
    assert all(f"request-{n} " in shown for n in range(2)), shown
    assert "…" not in shown
    failing = onceq.Queue("failing", dict, bytes, abort_limit=1)
    qm.declare(failing)
    long_text = "it is bad " * 20
    held = qm.enqueue(failing, {}, rid="bad")

    def fail(_request: dict[str, Any], _context: onceq.Context) -> bytes:
        raise ValueError(long_text)

    with serving(cli.url, cli.repository, failing.handled_by(fail)):
        wait_until(lambda: qm.show("failing.error").held == 1)
    lines = on_a_terminal(cli, "error", "list").splitlines()
    assert any(str(held) in line for line in lines)
    assert sum("bad" in line for line in lines) > 1  # prose is folded in its column
