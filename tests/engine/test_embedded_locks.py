"""The file locks, and what is said when one cannot be had."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from onceq.engine.embedded import open_embedded
from onceq.engine.embedded.directory import Layout
from onceq.engine.embedded.locks import (
    Deadline,
    FileLock,
    exclusively,
    holder_pids,
    is_locked,
    poll_until,
)
from onceq.errors import EmbeddedError
from tests.engine.embedded_children import Child

# Holds argv[1] until it is killed.
HOLD = """
import sys
from pathlib import Path
from onceq.engine.embedded.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.try_exclusive(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.lock"


def test_shared_locks_exclude_an_exclusive_one(path: Path) -> None:
    one, two = FileLock(path), FileLock(path)
    assert one.try_shared()
    assert two.try_shared()
    assert not is_locked(path)
    assert not two.try_exclusive()  # and so loses its shared one
    assert one.try_exclusive()
    assert is_locked(path)
    assert not two.wait_shared(Deadline(0.01))
    one.release()
    assert two.wait_exclusive(Deadline(0.01))
    two.release()
    two.release()
    assert not is_locked(path)


def test_a_lock_ends_with_its_process(path: Path) -> None:
    with Child(HOLD, path) as holder:
        assert holder.line() == "True"
        assert is_locked(path)
        assert holder_pids(path) in {(holder.pid,), None}
    assert not is_locked(path)


def test_a_file_replaced_since_it_was_opened_is_opened_again(path: Path) -> None:
    lock, other = FileLock(path), FileLock(path)
    path.unlink()
    assert not lock.try_exclusive()  # was the lock of a file that nobody will find
    assert lock.try_exclusive()
    assert is_locked(path)
    assert not other.wait_exclusive(Deadline(0.01))
    lock.release()
    other.release()


def test_a_closed_lock_says_so(path: Path) -> None:
    lock = FileLock(path)
    lock.close()
    with pytest.raises(EmbeddedError, match="closed, or opened before a fork"):
        lock.try_shared()


def test_a_file_system_without_locks_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_fd: int, _mode: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    lock = FileLock(path)
    monkeypatch.setattr(fcntl, "flock", flock)
    for attempt in (lock.try_shared, lambda: is_locked(path)):
        with pytest.raises(EmbeddedError, match=r"cannot be locked.*local disk"):
            attempt()
    lock.close()


def test_a_lock_file_that_is_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EmbeddedError, match="Cannot open the lock file"):
        FileLock(path)


def test_waiting_for_a_lock_ends_and_names_the_holder(path: Path) -> None:
    with Child(HOLD, path) as holder:
        holder.line()
        with (
            pytest.raises(EmbeddedError, match=f"held by another process.*{holder.pid}"),
            exclusively(path, Deadline(0.05)),
        ):
            pass
    with exclusively(path, Deadline(60)) as lock:
        assert is_locked(lock.path)


def test_opening_does_not_wait_for_ever_for_a_stop_or_a_start(directory: Path) -> None:
    layout = Layout(directory)
    for lock, said in ((layout.users_lock, "being stopped"), (layout.change_lock, "held by")):
        with Child(HOLD, lock) as holder:
            holder.line()
            with pytest.raises(EmbeddedError, match=f"{said}.*{holder.pid}"):
                open_embedded(directory, timeout_s=0.05)


def test_polling_tries_at_least_once() -> None:
    assert poll_until(lambda: True, Deadline(0))
    assert not poll_until(lambda: False, Deadline(0))
    assert Deadline(10).half().timeout_s <= 5
