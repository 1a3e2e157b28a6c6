"""A proxy in front of PostgreSQL that cuts a connection on either side of a commit.

Used by the proof's fault points and by torture, only on a machine's own sockets. It reads the wire
protocol just enough to know which turn of a client (what it sends until it waits for an answer)
commits. A cut before: the turn never arrives, and PostgreSQL rolls back. A cut after: PostgreSQL
has answered that it is ready again, and the client never hears of it. The client sees the same
error. It can also fall silent, like a dead link that was not cut: completely, or on one connection,
which then swallows what comes and closes nothing until its time is over. Never changes a byte, and
never holds one back except for a cut or a silence. TLS is refused to the client.
"""

from __future__ import annotations

import contextlib
import enum
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator

_PORT: Final = 5432
_READ_BYTES: Final = 65_536
_LENGTH: Final = struct.Struct("!I")
_STARTUP_ENCRYPTED: Final = frozenset({80877103, 80877104})
_ENDS_A_TURN: Final = frozenset(b"QSF")
"""Simple query, sync, function call: PostgreSQL answers each with one ReadyForQuery."""
_PASSED_ON: Final = frozenset(b"QSFHdcfpX")
"""Messages at which everything that the client has sent so far is passed on."""
_COMMITS: Final = re.compile(r"(?:^|;)\s*(?:commit|end)\s*(?:;|$)", re.IGNORECASE)
_BEGINS: Final = re.compile(r"^\s*(?:begin|start transaction)\b", re.IGNORECASE)


class Side(enum.StrEnum):
    """On which side of a commit a connection is lost."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a client sent until it waited. texts: of the statements that it executes.

    in_transaction: whether one was open when it was sent.
    """

    texts: tuple[str, ...]
    in_transaction: bool

    @property
    def is_commit(self) -> bool:
        """Whether a transaction that was open, or begun by it, is committed."""
        return any(_COMMITS.search(text) for text in self.texts)

    @property
    def commits(self) -> bool:
        """Whether anything is committed by it: a statement outside a transaction is one."""
        if self.is_commit or self.in_transaction:
            return self.is_commit
        return bool(self.texts) and not _BEGINS.match(self.texts[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A planned loss. pattern: of the SQL of single statements that it may strike.

    A COMMIT is always struck; pattern None: nothing else is. silent_s: how long the connection
    carries nothing, in either direction, before it ends; 0: it ends at once.
    """

    side: Side
    pattern: re.Pattern[str] | None = None
    silent_s: float = 0.0

    def strikes(self, turn: Turn) -> bool:
        """Returns whether this turn's connection is to be lost."""
        if not turn.commits or turn.is_commit:
            return turn.is_commit
        return self.pattern is not None and any(map(self.pattern.search, turn.texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A cut that was made. backend: the PostgreSQL process that served it. at: monotonic, ns."""

    cut: Cut
    turn: Turn
    backend: int
    at: int


@dataclass(slots=True)
class _Plan:
    """The planned cuts, and those that were made, in their order.

    passes: set while anything is passed on.
    """

    cuts: list[Cut] = field(default_factory=list[Cut])
    made: list[Made] = field(default_factory=list["Made"])
    changed: threading.Condition = field(default_factory=threading.Condition)
    passes: threading.Event = field(default_factory=threading.Event)

    def take(self, turn: Turn) -> Cut | None:
        """Returns the cut that strikes this turn, which is then no longer planned."""
        with self.changed:
            for index, cut in enumerate(self.cuts):
                if cut.strikes(turn):
                    return self.cuts.pop(index)
        return None

    def note(self, cut: Cut, turn: Turn, backend: int) -> None:
        made = Made(cut=cut, turn=turn, backend=backend, at=time.monotonic_ns())
        with self.changed:
            self.made.append(made)
            self.changed.notify_all()


class Proxy:
    """Listens on a Unix socket in `directory`, and passes on to where `conninfo` leads.

    directory: an existing one; its path is short, at most 80 bytes. Usable from any thread.
    """

    def __init__(self, conninfo: str, directory: Path) -> None:
        given = conninfo_to_dict(conninfo)
        self._target = (str(given.get("host") or "localhost"), int(given.get("port") or _PORT))
        self._plan = _Plan()
        self._plan.passes.set()
        self._sessions: list[_Session] = []
        self._lock = threading.Lock()
        path = directory / f".s.PGSQL.{_PORT}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(128)
        here = {"host": str(directory), "hostaddr": "", "port": str(_PORT)}
        self.conninfo = make_conninfo(conninfo, **here)
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def plan(self, cut: Cut) -> None:
        """Lets the next turn that this cut strikes, on any connection, be the last of its own."""
        with self._plan.changed:
            self._plan.cuts.append(cut)

    @property
    def planned(self) -> int:
        """How many planned cuts have not been made so far."""
        with self._plan.changed:
            return len(self._plan.cuts)

    def forget(self) -> None:
        """Forgets the planned cuts that were not made."""
        with self._plan.changed:
            self._plan.cuts.clear()

    @property
    def made(self) -> list[Made]:
        """The cuts that were made so far."""
        with self._plan.changed:
            return list(self._plan.made)

    def wait_made(self, count: int, timeout_s: float) -> bool:
        """Waits until this many cuts have been made; False if they were not in time."""
        with self._plan.changed:
            return self._plan.changed.wait_for(lambda: len(self._plan.made) >= count, timeout_s)

    def fall_silent(self) -> None:
        """Passes nothing on from now, in either direction, and cuts nothing; new ones hang too."""
        self._plan.passes.clear()

    def speak(self) -> None:
        """Passes on again, beginning with what has arrived meanwhile."""
        self._plan.passes.set()

    def silence_one(self, choice: int, silent_s: float) -> bool:
        """Lets one connection, wherever it is, carry nothing for this long, and then end.

        False: there was none.
        """
        with self._lock:
            there = [one for one in self._sessions if one.is_at_work]
        if there:
            cut = Cut(side=Side.BEFORE, silent_s=silent_s)
            there[choice % len(there)].lose(cut, Turn(texts=(), in_transaction=False))
        return bool(there)

    def cut_all(self) -> int:
        """Cuts every connection at once, wherever it is; returns how many."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
        for one in sessions:
            one.close()
        return len(sessions)

    def close(self) -> None:
        """Ends the proxy and all of its connections."""
        self._plan.passes.set()  # nobody waits on
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:  # until the listener is closed
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:  # PostgreSQL is down: its client learns it by the same means
                client.close()
                continue
            session = _Session(client, server, self._plan)
            with self._lock:
                self._sessions = [one for one in self._sessions if not one.is_over]
                self._sessions.append(session)
            session.start()

    def _connect(self) -> socket.socket:
        host, port = self._target
        if not host.startswith("/"):
            return socket.create_connection((host, port), timeout=None)
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(host) / f".s.PGSQL.{port}"))
        return server


class _Session:
    """One connection of a client. backend: the process that serves it, 0 before it is known."""

    def __init__(self, client: socket.socket, server: socket.socket, plan: _Plan) -> None:
        self._client = client
        self._server = server
        self._plan = plan
        self._statements: dict[bytes, str] = {}
        self._texts: list[str] = []
        self._in_transaction = False
        self._sent = 0
        self._answered = -1  # the first ReadyForQuery answers the start
        self._lost: tuple[int, Cut, Turn] | None = None
        self._is_silent = False
        self.backend = 0
        self.is_over = False

    def start(self) -> None:
        for target in (self._from_client, self._from_server):
            threading.Thread(target=self._pump, args=(target,), name="proxy", daemon=True).start()

    def close(self) -> None:
        """Ends both sides; idempotent."""
        self.is_over = True
        for one in (self._client, self._server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @property
    def is_at_work(self) -> bool:
        """Whether it has been begun, and carries what is sent."""
        return bool(self.backend) and not self._is_silent and not self.is_over

    def fall_silent(self, silent_s: float) -> None:
        """Swallows all that comes, and closes nothing, for this long; then ends."""
        self._is_silent = True
        end = threading.Timer(silent_s, self.close)
        end.daemon = True
        end.start()

    def _pump(self, target: object) -> None:
        with contextlib.suppress(OSError):  # either side may end at any time: then both do
            if callable(target):
                target()
        if not self._is_silent:  # on a dead link neither end learns that the other has gone
            self.close()

    def _from_client(self) -> None:
        stream = _Stream(self._client)
        first = self._startup(stream)
        self._plan.passes.wait()
        self._server.sendall(first)
        waiting = bytearray()
        for kind, whole in stream.frames():
            waiting += whole
            self._read(kind, whole[5:])
            if kind not in _PASSED_ON:
                continue
            if kind in _ENDS_A_TURN and not self._turn():
                return
            self._plan.passes.wait()
            if not self._is_silent:
                self._server.sendall(waiting)
            waiting.clear()

    def _startup(self, stream: _Stream) -> bytes:
        while True:  # libpq asks for each kind of encryption at most once
            first = stream.startup()
            if _LENGTH.unpack_from(first, 4)[0] not in _STARTUP_ENCRYPTED:
                return first
            self._client.sendall(b"N")

    def _read(self, kind: int, body: bytes) -> None:
        """Notes the text of what is executed."""
        if kind == ord("Q"):
            self._texts.append(body.rstrip(b"\0").decode("utf-8", "replace"))
        elif kind == ord("P"):
            name, text = body.split(b"\0", 2)[:2]
            self._statements[name] = text.decode("utf-8", "replace")
        elif kind == ord("B"):
            self._texts.append(self._statements.get(body.split(b"\0", 2)[1], ""))

    def _turn(self) -> bool:
        """Notes that a turn is complete; False if it must not arrive."""
        turn = Turn(texts=tuple(self._texts), in_transaction=self._in_transaction)
        self._texts.clear()
        cut = self._plan.take(turn)
        if cut is not None and cut.side is Side.BEFORE:
            return self.lose(cut, turn)
        if cut is not None:
            self._lost = (self._sent, cut, turn)
        self._sent += 1
        return True

    def lose(self, cut: Cut, turn: Turn) -> bool:
        """Makes a cut; returns whether this connection still takes what comes."""
        self._plan.note(cut, turn, self.backend)
        if cut.silent_s:
            self.fall_silent(cut.silent_s)
        else:
            self.close()
        return bool(cut.silent_s)

    def _from_server(self) -> None:
        for kind, whole in _Stream(self._server).frames():
            lost = self._lost
            hidden = lost is not None and self._answered >= lost[0]
            if kind == ord("K"):
                self.backend = _LENGTH.unpack_from(whole, 5)[0]
            if kind == ord("Z"):
                self._in_transaction = whole[5:6] != b"I"
                self._answered += 1
                is_due = hidden and lost is not None and not self._is_silent
                if is_due and lost is not None and not self.lose(lost[1], lost[2]):
                    return
            self._plan.passes.wait()
            if not hidden and not self._is_silent:
                self._client.sendall(whole)


class _Stream:
    """Messages of the wire protocol, complete, as they come."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._waiting = bytearray()

    def startup(self) -> bytes:
        """Returns the first message of a client, which has no kind."""
        (length,) = _LENGTH.unpack(self._peek(4))
        return self._take(length)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yields (kind, message) until the connection ends."""
        while True:  # until the end, which raises
            head = self._peek(5)
            yield head[0], self._take(1 + _LENGTH.unpack_from(head, 1)[0])

    def _peek(self, size: int) -> bytes:
        while len(self._waiting) < size:
            data = self._source.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the connection has ended")
            self._waiting += data
        return bytes(self._waiting[:size])

    def _take(self, size: int) -> bytes:
        taken = self._peek(size)
        del self._waiting[:size]
        return taken
