"""A store in a process of its own: it begins, is used, and ends with whoever began it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from onceq.errors import DeadlineExceeded, IllegalState, InvalidValue
from onceq.streams.errors import StoreFailed, StoreRefused
from onceq.streams.model import asks
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.limits import Limits
from onceq.streams.store.rolling import LogFile, Roll
from onceq.streams.store.running import StoreKind, StoreSettings, run_store
from onceq.streams.store.store_process import StoreProcess
from tests.parts import wait_until
from tests.streams.net.daemons import soon
from tests.streams.net.test_daemon import begun
from tests.streams.store.test_disk_store import S, chance, data_of

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """
import sys
from pathlib import Path
from onceq.streams.store.running import StoreSettings
from onceq.streams.store.store_process import StoreProcess
one = StoreProcess(StoreSettings(listen="127.0.0.1:0", directory=Path(sys.argv[1])))
one.start()
print(one.pid, flush=True)
sys.stdin.read()
"""


ALONE = """
import sys
from pathlib import Path
import onceq.streams
store = onceq.streams.StoreProcess(
    onceq.streams.StoreSettings(listen="127.0.0.1:0", directory=Path(sys.argv[1])),
    log=onceq.streams.LogFile(path=Path(sys.argv[2])),
)
with store:
    pass
"""


def settings(home: Path, metrics: str | None = None) -> StoreSettings:
    """A store on a disk, with segments that are made at once; a new one if there is none."""
    if not (home / "store").exists():
        initialize(home / "store", chance, segment_bytes=1 << 20)
    may_keep = Limits(size_bytes=1 << 30)
    return StoreSettings(
        listen="127.0.0.1:0", directory=home / "store", metrics=metrics, may_keep=may_keep
    )


async def send_one(address: str) -> None:
    source = await begun(address)
    source.link.send(data_of(1, 0))
    await source.until(asks.Holding(epoch=1, end=1))
    source.link.close()
    assert await source.heard() is None


def test_a_store_is_a_child_that_stops_in_order(tmp_path: Path) -> None:
    log = LogFile(path=tmp_path / "log", size_bytes=1 << 20, roll=Roll.DAILY)
    with StoreProcess(settings(tmp_path, "127.0.0.1:0"), log=log) as one:
        assert one.pid != os.getpid()
        assert one.metrics is not None
        asyncio.run(send_one(one.address))
        assert [one.code] == [None]
        with pytest.raises(IllegalState, match="started once"):
            one.start()
        second = StoreProcess(settings(tmp_path))
        with pytest.raises(StoreRefused, match="in use by another"):
            second.start()
        assert second.code == 4
    assert one.code == 0
    one.stop()
    assert "store_stopped" in (tmp_path / "log").read_text()
    store = DiskStore(tmp_path / "store", chance)
    assert store.catalogue.of(S).end == 1
    store.close()


def test_a_store_ends_with_its_parent(tmp_path: Path) -> None:
    settings(tmp_path)
    command = [sys.executable, "-c", PARENT, str(tmp_path / "store")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.kill()
    wait_until(lambda: is_free(tmp_path / "store"))


def is_free(home: Path) -> bool:
    """Whether no process has a store."""
    try:
        DiskStore(home, chance).close()
    except StoreRefused:
        return False
    return True


def test_a_store_that_died_is_said(tmp_path: Path) -> None:
    one = StoreProcess(settings(tmp_path))
    one.start()
    os.kill(one.pid, signal.SIGKILL)
    asyncio.run(soon(lambda: one.code is not None))
    with pytest.raises(StoreFailed, match="ended with -9"):
        one.stop()


def test_a_store_that_does_not_end_is_killed(tmp_path: Path) -> None:
    one = StoreProcess(settings(tmp_path))
    one.start()
    os.kill(one.pid, signal.SIGSTOP)
    with pytest.raises(DeadlineExceeded, match="was killed"):
        one.stop(timeout_s=0.1)
    assert one.code == -signal.SIGKILL
    assert is_free(tmp_path / "store")


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="neither directory"):
        StoreProcess(StoreSettings(listen="127.0.0.1:0"))
    one = StoreProcess(StoreSettings(listen="127.0.0.1:0", kind=StoreKind.MEMORY))
    with pytest.raises(IllegalState, match="has not begun"):
        _ = one.address
    assert one.code is None
    one.stop()
    slow = StoreProcess(settings(tmp_path))
    with pytest.raises(DeadlineExceeded, match="did not begin"):
        slow.start(timeout_s=0.0)
    assert slow.code == -signal.SIGKILL


def test_a_process_says_nothing_on_standard_error_if_it_logs_to_a_file(tmp_path: Path) -> None:
    where = settings(tmp_path).directory
    told = subprocess.run(
        [sys.executable, "-c", ALONE, str(where), str(tmp_path / "store.log")],
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert told.stderr == b""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"init": "yes"}, "init of a store is 'yes': give bool"),
        ({"init": 1}, "init of a store is 1: give bool"),
        ({"kind": "memory"}, r"kind of a store is 'memory': give .*StoreKind \| None"),
        ({"directory": "here"}, r"directory of a store is 'here': give pathlib.Path \| None"),
        ({"listen": 7401}, "listen of a store is 7401: give str"),
        ({"metrics": 7402}, "metrics of a store is 7402"),
        ({"may_keep": 5}, "may_keep of a store is 5: give Limits"),
        ({"certificates": "x.pem"}, "certificates of a store is 'x.pem'"),
    ],
)
def test_settings_of_other_types_are_refused_before_a_process_begins(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    right: dict[str, Any] = {"listen": "127.0.0.1:0", "directory": tmp_path / "store"}
    with pytest.raises(InvalidValue, match=says):
        StoreProcess(StoreSettings(**right | given))
    with pytest.raises(InvalidValue, match=says):
        run_store(StoreSettings(**right | given))
    assert not (tmp_path / "store").exists()
