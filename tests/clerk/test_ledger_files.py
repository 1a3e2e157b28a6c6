"""A ledger in a file that is torn, corrupt, or not this client's: a clear error, nothing lost."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.clerk.ledger.sqlite import AsyncSqliteExecutor, SqliteExecutor
from onceq.errors import EnvironmentFault, IllegalState, LedgerRefused
from onceq.model.ledger_ops import Statement
from tests.parts import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

RAW = onceq.Queue("raw", bytes, bytes)


@pytest.fixture
def path(qm: onceq.QueueManager, tmp_path: Path) -> Path:
    """The ledger of ann, whose request 1 was sent."""
    qm.declare(RAW)
    with qm.clerk("ann", RAW, ledger=onceq.SqliteLedger(tmp_path / "ann.ledger")) as clerk:
        clerk.recover()
        clerk.send("1", b"x" * 10_000)
    return tmp_path / "ann.ledger"


def _torn(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _overwritten(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : 4096 + 200] = bytes(200)
    path.write_bytes(content)


def _other_content(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("""update onceq_ledger set entry = replace(entry, '"1"', '"2"')""")
    connection.close()


def _text(path: Path) -> None:
    path.write_text("rid,body\n1,x\n" * 100)


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("update onceq_ledger set version = 2")
    connection.close()


@pytest.mark.parametrize("spoil", [_torn, _overwritten, _other_content, _text, _newer])
def test_what_cannot_be_read_is_refused_and_nothing_is_lost(
    qm: onceq.QueueManager, path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(path)
    there = path.read_bytes()
    ledger = onceq.SqliteLedger(path)
    clerk = qm.clerk("ann", RAW, ledger=ledger)
    with pytest.raises(LedgerRefused, match=r"ann\.ledger"):
        clerk.connect()
    clerk.close()
    assert path.read_bytes() == there
    with qm.clerk("ann", RAW, ledger=onceq.SqliteLedger(path.with_name("new"))) as anew:
        found = anew.recover()
        assert isinstance(found, onceq.Submitted)
        assert found.rid == "1"


def test_the_ledger_of_another_is_refused(qm: onceq.QueueManager, path: Path) -> None:
    bob = qm.clerk("bob", RAW, ledger=onceq.SqliteLedger(path))
    with pytest.raises(LedgerRefused, match="another client"):
        bob.connect()
    bob.close()
    with qm.clerk("ann", RAW, ledger=onceq.SqliteLedger(path)) as ann:
        assert isinstance(ann.recover(), onceq.Submitted)


def test_after_a_refused_connect_nothing_but_a_connect_may_follow(
    qm: onceq.QueueManager, path: Path
) -> None:
    clerk = qm.clerk("bob", RAW, ledger=onceq.SqliteLedger(path))
    with pytest.raises(LedgerRefused):
        clerk.connect()
    for call in (clerk.recover, clerk.discard, lambda: clerk.send("1", b"x")):
        with pytest.raises(IllegalState, match="connect"):
            call()
    clerk.close()


def test_an_older_copy_of_the_ledger_is_brought_up_to_the_session(
    qm: onceq.QueueManager, path: Path
) -> None:
    copy = path.read_bytes()
    with qm.clerk("ann", RAW, ledger=onceq.SqliteLedger(path)) as clerk:
        clerk.recover()
        clerk.cancel_last_request()
        clerk.done(clerk.receive(timeout_s=60))
        clerk.send("2", b"y")
    path.write_bytes(copy)
    with qm.clerk("ann", RAW, ledger=onceq.SqliteLedger(path)) as clerk:
        found = clerk.recover()
        assert isinstance(found, onceq.Submitted)
        assert found.rid == "2"


def test_a_file_that_cannot_be_written_is_said(qm: onceq.QueueManager, tmp_path: Path) -> None:
    qm.declare(RAW)
    clerk = qm.clerk("ann", RAW, ledger=onceq.SqliteLedger(tmp_path / "none" / "ann.ledger"))
    with pytest.raises(EnvironmentFault, match="directory"):
        clerk.connect()
    clerk.close()


def test_the_clients_own_file_will_do(qm: onceq.QueueManager, tmp_path: Path) -> None:
    qm.declare(RAW)
    own = sqlite3.connect(tmp_path / "shop.db")
    own.execute("create table baskets (number integer)")
    own.close()
    with qm.clerk("ann", RAW, ledger=onceq.SqliteLedger(tmp_path / "shop.db")) as clerk:
        clerk.recover()
        with clerk.transaction() as work:
            work.connection.execute("insert into baskets values (1)")
            work.send("1", b"x")
        assert isinstance(clerk.recover(), onceq.Submitted)


class _Slow(SqliteExecutor):
    """Whose statements take their time. ended: in which order what was called has ended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.ended: list[str] = []
        self.was_closed = threading.Event()

    def execute(self, op: Statement) -> list[Any]:
        self.begun.set()
        assert self.goes_on.wait(LIMIT_S)
        self.ended.append(op.text)
        return []

    def close(self) -> None:
        super().close()
        self.ended.append("close")
        self.was_closed.set()
        self.goes_on.set()


def test_a_file_is_not_closed_in_the_middle_of_a_statement_that_was_cancelled(
    tmp_path: Path,
) -> None:
    """It goes on in its thread; SQLite would crash the process."""

    async def main() -> None:
        slow = _Slow(tmp_path / "ledger")
        executor = AsyncSqliteExecutor(slow)
        statement = asyncio.create_task(executor.execute(Statement(text="select 1")))
        await asyncio.to_thread(slow.begun.wait, LIMIT_S)
        statement.cancel()
        closing = asyncio.create_task(executor.close())
        await asyncio.wait([closing], timeout=0.2)
        slow.goes_on.set()
        await closing
        assert slow.ended == ["select 1", "close"]

    asyncio.run(main())


def test_a_close_that_is_cancelled_before_its_turn_leaves_no_lock(tmp_path: Path) -> None:
    """The next connect would wait for its transaction, and find the ledger locked."""

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        inner = SqliteExecutor(tmp_path / "ledger")
        inner.execute(Statement(text="begin immediate"))
        executor, goes_on = AsyncSqliteExecutor(inner), threading.Event()
        busy = asyncio.ensure_future(asyncio.to_thread(goes_on.wait, LIMIT_S))
        closing = asyncio.create_task(executor.close())
        await asyncio.wait([closing], timeout=0.2)
        closing.cancel()
        await asyncio.wait([closing])
        goes_on.set()
        await busy
        again = await asyncio.to_thread(SqliteExecutor, tmp_path / "ledger")
        await asyncio.to_thread(again.execute, Statement(text="begin immediate"))
        again.close()

    asyncio.run(main())


def test_a_file_that_was_opened_for_nobody_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had it opened was cancelled meanwhile."""
    slow = _Slow(tmp_path / "ledger")

    def open_slowly(_: Path) -> SqliteExecutor:
        slow.begun.set()
        assert slow.goes_on.wait(LIMIT_S)
        return slow

    async def main() -> None:
        monkeypatch.setattr("onceq.clerk.ledger.sqlite.SqliteExecutor", open_slowly)
        ledger: Any = onceq.SqliteLedger(tmp_path / "ledger")
        opening = asyncio.create_task(ledger.open_async(None))
        await asyncio.to_thread(slow.begun.wait, LIMIT_S)
        opening.cancel()
        await asyncio.wait([opening])
        slow.goes_on.set()
        assert await asyncio.to_thread(slow.was_closed.wait, LIMIT_S)

    asyncio.run(main())
    assert slow.ended == ["close"]
