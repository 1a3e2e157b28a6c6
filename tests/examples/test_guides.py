"""The guides, word for word: their programs print what they say, their tests pass."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from onceq.engine.embedded import find_binaries
from tests.examples.pages import blocks, reader, section, shell, text_of, write_files
from tests.parts import plain

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 300


CHAIN = """
import threading

import onceq
from chain import ORDERS, PACK, book, pack

server = onceq.Server([ORDERS.handled_by(book), PACK.handled_by(pack)])
thread = threading.Thread(target=server.run)
thread.start()
with onceq.open() as qm:
    packed = qm.dequeue("packed", timeout_s=60)
server.stop()
thread.join()
print(packed.scratch, packed.correlation_id)
"""


def free_ports(number: int) -> list[str]:
    """Returns ports of the loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)
        ]
        return [str(one.getsockname()[1]) for one in sockets]


@pytest.mark.timeout(400)
def test_bring_your_own_connection(conninfo: str, tmp_path: Path) -> None:
    """Of the six programs all but the last two print nothing."""
    page = text_of("docs/connections.md")
    shop, *names = write_files(page, tmp_path)
    assert (shop, len(names)) == ("shop.py", page.count("```python") - 1)
    found = blocks(page)
    runs = "".join(f"python -W error {name}\n" for name in names)
    with plain(conninfo) as connection:
        connection.execute("create database guide")
    url = make_conninfo(conninfo, dbname="guide")
    try:
        script = f"{{\n{found['bash']}}} >&2\n{runs}"
        printed, complaints = shell(script, tmp_path, reader(ONCEQ_URL=url), LIMIT_S)
        assert printed == found["text"], complaints
        with plain(url) as connection:
            rows = connection.execute("select number from orders order by number").fetchall()
        assert rows == [(1,), (3,), (4,), (5,)]
    finally:
        with plain(conninfo) as connection:
            connection.execute("drop database guide with (force)")


@pytest.mark.timeout(400)
def test_test_your_handlers(conninfo: str, tmp_path: Path) -> None:
    """Two runs at once in one database, as those of pytest-xdist may be."""
    page = text_of("docs/testing.md")
    assert len(write_files(page, tmp_path)) == page.count("```python")
    options = ("-p", "onceq.testing.plugin", "-p", "no:cacheprovider", "-q")
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "pytest", *options],
            cwd=tmp_path,
            env=reader(ONCEQ_TEST_URL=conninfo),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    for one in running:
        said, _ = one.communicate(timeout=LIMIT_S)
        assert (one.returncode, "6 passed" in said) == (0, True), said


@pytest.mark.timeout(400)
def test_files_of_requests_and_of_replies(tmp_path: Path) -> None:
    """In the directory of the quickstart, where one order is booked."""
    quickstart, page = section("Quickstart", text_of("README.md")), text_of("docs/files.md")
    write_files(quickstart, tmp_path)
    (program,) = write_files(page, tmp_path)
    before, script = blocks(quickstart)["bash"], blocks(page)["bash"]
    lines = f"{{\n{before}}} >&2\n{script}python {program}\n"
    printed, complaints = shell(lines, tmp_path, reader(), LIMIT_S)
    assert f"```text\n{printed}```" in page, complaints


ASKED_LATE = """
import http.client
import socket
import time

while socket.socket().connect_ex(("127.0.0.1", 8712)):  # it was killed, and is starting
    time.sleep(0.1)
for number in (*range(22), 1, 0):
    web = http.client.HTTPConnection("127.0.0.1", 8712, timeout=30)
    web.request("PUT", f"/orders/zoe-{number}", b'{"cents": 1}', {"X-User": "zoe"})
    print(number, web.getresponse().status)
"""
"""One user orders more often than replies are kept, then asks for the first two orders again."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("with_fastapi", [False, True])
def test_in_a_web_application(tmp_path: Path, *, with_fastapi: bool) -> None:
    """Two web processes killed under load: each booking has its receipt, and the reverse."""
    page, late = text_of("docs/web-application.md"), ASKED_LATE
    for written, free in zip(("8711", "8712"), free_ports(2), strict=True):
        page, late = page.replace(written, free), late.replace(written, free)
    assert len(write_files(page, tmp_path)) == page.count("```python")
    (tmp_path / "late.py").write_text(late)
    end = "kill $first $second $server\n"
    script = blocks(page)["bash"].replace(end, f"python late.py > late.txt\n{end}")
    if with_fastapi:
        (command,) = re.findall(r"`(uvicorn .* --port)`", page)
        script = script.replace("python web.py", f"python -m {command}")
    printed, complaints = shell(script, tmp_path, reader(), LIMIT_S)
    assert f"```text\n{printed}```" in page, complaints
    assert complaints.count("Killed") == 6, complaints
    said = [f"{number} 200" for number in range(22)]
    assert (tmp_path / "late.txt").read_text().splitlines() == [*said, "1 200", "0 410"], complaints


@pytest.mark.timeout(400)
def test_one_server_per_outside_service(tmp_path: Path) -> None:
    page = text_of("docs/one-server-per-service.md")
    names = write_files(page, tmp_path)
    assert names == ["services.py", "turns.py"]
    runs = "".join(f"python {name}\n" for name in names)
    printed, complaints = shell(runs, tmp_path, reader(), LIMIT_S)
    assert printed == blocks(page)["text"], complaints


@pytest.mark.timeout(400)
def test_several_types_in_one_queue(tmp_path: Path) -> None:
    page = section("Several types in one queue", text_of("docs/types.md"))
    (name,) = write_files(page, tmp_path)
    printed, complaints = shell(f"python {name}", tmp_path, reader(), LIMIT_S)
    assert printed == blocks(page)["text"], complaints


@pytest.mark.timeout(400)
def test_a_chain_of_servers(tmp_path: Path) -> None:
    """The scratch pad comes through it, with what each handler wrote."""
    write_files(text_of("docs/attributes.md"), tmp_path)
    (tmp_path / "serving.py").write_text(CHAIN, encoding="utf-8")
    environment = reader(ONCEQ_URL="embedded:./data")
    runs = "python chain.py\npython serving.py"
    printed, complaints = shell(runs, tmp_path, environment, LIMIT_S)
    said, _ = shell("python acks.py", tmp_path, environment, LIMIT_S)
    assert said == blocks(text_of("docs/attributes.md"))["text"]
    assert "{'till': 7, 'booked by': 'ann', 'packed by': 'bob'} pack order 4711" in printed, (
        complaints
    )


@pytest.mark.timeout(400)
def test_strict_order(tmp_path: Path) -> None:
    """The head blocks the queue until it is killed: by the command line, and by Python."""
    page = text_of("docs/order.md")
    assert write_files(page, tmp_path) == ["account.py", "send.py", "solve.py"]
    found = blocks(page)
    printed, complaints = shell(found["bash"], tmp_path, reader(), LIMIT_S)
    assert printed == found["text"], complaints


@pytest.mark.timeout(400)
def test_opentelemetry(tmp_path: Path) -> None:
    page = text_of("docs/opentelemetry.md")
    assert write_files(page, tmp_path) == ["spans.py", "orders.py", "till.py"]
    printed, complaints = shell(blocks(page)["bash"], tmp_path, reader(), LIMIT_S)
    assert printed.endswith(blocks(page)["text"]), complaints


@pytest.mark.timeout(400)
def test_deploy(conninfo: str, tmp_path: Path) -> None:
    """A role that can make nothing serves, and a dump is restored."""
    write_files(section("Quickstart", text_of("README.md")), tmp_path)
    page = text_of("docs/deploy.md")
    found = blocks(page)
    at = {
        "ADMIN": conninfo,
        "OWNER": make_conninfo(conninfo, user="shop_owner", dbname="shop"),
        "ONCEQ_URL": make_conninfo(conninfo, user="shop_app", dbname="shop"),
    }
    environment = reader(**at)
    environment["PATH"] = f"{find_binaries().directory}:{environment['PATH']}"
    try:
        printed, complaints = shell(found["bash"], tmp_path, environment, LIMIT_S)
        assert printed == found["text"], complaints
        assert "must be owner of table element" in (tmp_path / "refused.txt").read_text()
    finally:
        with plain(conninfo) as connection:
            for name in ("shop", "shop_before"):
                connection.execute(f"drop database if exists {name} with (force)".encode())
            for name in ("shop_app", "shop_owner"):
                connection.execute(f"drop role if exists {name}".encode())


VARIES = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "EID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}(\+00:00)?", "TIME"),
    (r"TIME \d+ WARNING", "TIME PID WARNING"),
    (r"\(\S+ \d+\)", "(HOST PID)"),
    (r'File ".*/shop\.py"', 'File "shop.py"'),
    (r"^ *[~^]+\n", ""),  # another Python marks other parts of a line
    (r" +$", ""),
)
"""What differs each time, and what stands for it."""


def common(text: str) -> str:
    """Returns a text without what differs each time."""
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


@pytest.mark.timeout(400)
def test_find_out_why_it_failed(tmp_path: Path) -> None:
    """The failure is found in the log and in the database, mended, and run again."""
    page = text_of("docs/find-out-why-it-failed.md")
    names = ["shop.py", "ask.py", "back.py", "leave.py", "told.py", "ask_again.py"]
    assert write_files(page, tmp_path) == names
    found = blocks(page)
    environment = reader(TZ="UTC")
    printed, complaints = shell(found["bash"], tmp_path, environment, LIMIT_S)
    log = (tmp_path / "serve.log").read_text("utf-8")
    assert common(printed) == common(found["text"]), f"{printed}\n{complaints}\n{log}"
    assert "o-2" in log
