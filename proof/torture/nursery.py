"""The nursery: a warm process that forks the participants, and signals them as their parent.

Started by the fleet, with the number of a socket. It has imported everything, so
that a life begins in milliseconds. As the parent it alone knows which children are not yet reaped:
no signal of its goes to a process that is not its own. It has one thread, and no connection. When
the conductor is gone it kills all of its children, and ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from onceq.engine.sessions import silence
from proof.torture import clients, cutter, desk, notes, servers
from proof.torture.life import SILENCE_S, Life

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PROGRAMS: Final[dict[str, Callable[[Life], None]]] = {
    "clerk": clients.clerk_client,
    "stream": clients.stream_client,
    "desk": desk.desk_clients,
    "notes": notes.note_sender,
    "server": servers.single_server,
    "batch": servers.batch_server,
    "cutter": cutter.cutter,
}
FAILED: Final = 70
"""Exit code of a participant that ended by an exception: what it said is in `said.txt`."""
FORKS_MAX: Final = 1_000
_READ_BYTES: Final = 65_536


class Wish(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the conductor wants. number: a signal; spare_bytes: the rest of the address space."""

    name: str
    life: Life | None = None
    number: int | None = None
    spare_bytes: int | None = None


class News(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of a participant. code: as of subprocess; asked: a kill -9 had been sent."""

    name: str
    pid: int
    code: int | None = None
    asked: bool = False


class Nursery:
    """The children by name, and the line to the conductor."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._pids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._killed: set[int] = set()
        self._had: set[int] = set()
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _heed)

    def run(self) -> None:
        """Serves until the conductor is gone."""
        waiting = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._line, selectors.EVENT_READ)
            ready.register(self._read, selectors.EVENT_READ)
            while True:  # until the conductor closes its end
                found = {key.fileobj for key, _ in ready.select()}
                if self._read in found:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._read, _READ_BYTES)
                self._reap()
                if self._line in found:
                    data = self._line.recv(_READ_BYTES)
                    if not data:
                        return
                    *lines, waiting = (waiting + data).split(b"\n")
                    for line in lines:
                        self._grant(msgspec.json.decode(line, type=Wish))

    def kill_all(self) -> None:
        """Kills the children that are left."""
        for pid in self._names:
            os.kill(pid, signal.SIGKILL)

    def _grant(self, wish: Wish) -> None:
        if wish.life is not None:
            self._begin(wish.life)
            return
        pid = self._pids.get(wish.name)
        if pid is None:
            return
        if wish.spare_bytes is not None:
            _starve(pid, wish.spare_bytes)
        if wish.number is not None:
            if wish.number == signal.SIGKILL:
                self._killed.add(pid)
            os.kill(pid, wish.number)

    def _begin(self, life: Life) -> None:
        pid = self._fork(life)
        self._pids[life.name], self._names[pid] = pid, life.name
        self._tell(News(name=life.name, pid=pid))

    def _fork(self, life: Life) -> int:
        """Returns the PID of a child that lives this life: one that no child had before.

        The evidence knows a process by its PID, and the system has few: 32,768 may be all.
        """
        for _ in range(FORKS_MAX):
            pid = os.fork()
            if pid == 0:
                if os.getpid() in self._had:
                    os._exit(0)
                self._line.close()
                signal.set_wakeup_fd(-1)
                os.close(self._read)
                os.close(self._write)
                _live(life)
            if pid not in self._had:
                self._had.add(pid)
                return pid
            os.waitpid(pid, 0)
        raise RuntimeError(f"{FORKS_MAX} PIDs in a row were had before: the system has too few")

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name = self._names.pop(pid)
            if self._pids.get(name) == pid:
                del self._pids[name]
            code = os.waitstatus_to_exitcode(status)
            self._tell(News(name=name, pid=pid, code=code, asked=pid in self._killed))
            self._killed.discard(pid)

    def _tell(self, news: News) -> None:
        with contextlib.suppress(BrokenPipeError):  # the conductor is gone: the next read says so
            self._line.sendall(msgspec.json.encode(news) + b"\n")


def headline(life: Life) -> str:
    """Returns the line before what a life said last, in `said.txt`."""
    return f"--- {life.name} {life.life}"


def _heed(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: that there is a handler wakes the nursery when a child has died."""


def _starve(pid: int, spare_bytes: int) -> None:
    """Leaves a child little more address space than it has. Linux only."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + spare_bytes
    with contextlib.suppress(ProcessLookupError):  # it has died and is not yet reaped
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _live(life: Life) -> NoReturn:
    """Lives a life, in the child, and ends the process."""
    code = FAILED
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the conductor's
        silence.SILENCE_S = SILENCE_S
        PROGRAMS[life.kind](life)
        code = 0
    except BaseException:  # noqa: BLE001 # the boundary of a process: told, and judged by its code
        said = f"{headline(life)}\n{traceback.format_exc()}"
        with contextlib.suppress(OSError), (Path(life.place) / "said.txt").open("a") as file:
            file.write(said)
    finally:
        os._exit(code)


def main() -> None:
    """Serves the conductor on the other end of the socket that was inherited."""
    line = socket.socket(fileno=int(sys.argv[1]))
    line.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # the children share these pages for longer
    nursery = Nursery(line)
    try:
        nursery.run()
    finally:
        nursery.kill_all()
