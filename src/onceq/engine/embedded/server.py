"""Opens, restarts, stops and describes the embedded server of a directory.

The public face of this package. Several threads and processes may open the same
directory: each holds a shared lock on it, the first starts the server, the last that
closes stops it. A user that dies leaves the server running; the next open joins it.
It never stops a server that others use (unless forced), and never listens on a network.
Where there is a /proc, it never signals a process by its pid alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceq.engine.embedded.binaries import Binaries
from onceq.engine.embedded.cluster import (
    SUPERUSER,
    Options,
    end_orphans,
    is_running,
    launch_server,
    log_tail,
    running_pid_file,
    stop_server,
    stumbled,
)
from onceq.engine.embedded.directory import Layout, claim_directory, existing_directory
from onceq.engine.embedded.locks import Deadline, FileLock, exclusively, holder_pids, poll_until
from onceq.engine.embedded.privileges import Mode
from onceq.engine.embedded.process import read_identity
from onceq.engine.embedded.sockets import PORT
from onceq.errors import EmbeddedError, EmbeddedStartFailed, InvalidValue

DATABASE: Final = "onceq"

_CONNECT_TIMEOUT_S = 5
_ORPHAN_GRACE_S = 1.0
_RESTARTS_MAX = 5
_FULL = ("too many clients", "connection slots are reserved")
_SETTING_NAME = re.compile(r"[a-z_][a-z0-9_.]{0,62}\Z")
_FIXED_SETTINGS = frozenset(
    {"data_directory", "listen_addresses", "port", "unix_socket_directories"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedStatus:
    """What is known about a directory's server, without changing anything."""

    directory: Path
    running: bool
    pid: int | None
    version: int | None  # PostgreSQL's major version; None before the first start
    socket_directory: Path | None
    users: tuple[int, ...] | None  # pids; None where the system does not tell
    log: Path


class EmbeddedServer:
    """One user of a running embedded server; made by `open_embedded`.

    Usable from several threads. Not after a fork: the child opens the directory itself.
    """

    def __init__(self, layout: Layout, options: Options, deadline: Deadline) -> None:
        """Take the lock of a user, then join or start the server; see `open_embedded`."""
        self._layout = layout
        self._options = options
        self._timeout_s = deadline.timeout_s
        self._changing = threading.Lock()
        self._conninfo = ""
        with contextlib.ExitStack() as undo:
            self._users = FileLock(layout.users_lock)
            undo.callback(self._users.release)
            if not self._users.wait_shared(deadline):
                raise EmbeddedError(
                    f"The server of {layout.directory} was being stopped for "
                    f"{deadline.timeout_s:g} s (by pids {holder_pids(layout.users_lock)}). "
                    "Open it again later."
                )
            self._ensure(deadline)
            undo.pop_all()

    @property
    def directory(self) -> Path:
        """The data directory, absolute, links resolved."""
        return self._layout.directory

    @property
    def conninfo(self) -> str:
        """For psycopg; may differ after each `ensure_running`."""
        return self._conninfo

    def ensure_running(self) -> bool:
        """Start the server again if it has died; True if this call started it.

        Waits for the ends of a dead server's processes, and for recovery, within the
        time-out given to `open_embedded`. Raises EmbeddedError or EmbeddedStartFailed.
        """
        return self._ensure(Deadline(self._timeout_s))

    def postmaster_pid(self) -> int:
        """The pid of the server's first process; EmbeddedError if it does not run."""
        found = read_identity(self._layout.run_lock)
        if found is None or not found.alive():
            raise EmbeddedError(f"No PostgreSQL runs in {self.directory}; call ensure_running.")
        return found.pid

    def close(self) -> None:
        """Stop using the server, and stop it if nobody else does. Idempotent.

        In a forked child it does nothing. Raises EmbeddedError if the server does not
        stop in time; it is no longer used by this object even then.
        """
        if self._users.fd < 0:  # before the mutex, which a fork may have copied while locked
            return
        with self._changing:
            deadline = Deadline(self._timeout_s)
            try:
                with exclusively(self._layout.change_lock, deadline):
                    if self._users.fd >= 0 and self._users.try_exclusive():
                        stop_server(self._layout, deadline)
            finally:
                self._users.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ensure(self, deadline: Deadline) -> bool:
        self._check_open()
        if self._join():
            return False
        started = False
        with self._changing:
            self._check_open()
            for _ in range(_RESTARTS_MAX):  # others may kill or stop it just before we join
                with exclusively(self._layout.change_lock, deadline):
                    started |= _bring_up(self._layout, self._options, deadline)
                if self._join():
                    return started
        raise EmbeddedError(
            f"PostgreSQL in {self.directory} ended {_RESTARTS_MAX} times just after it had "
            f"started; find out who ends it. The end of its log:\n{log_tail(self._layout)}"
        )

    def _check_open(self) -> None:
        if self._users.fd < 0:
            raise EmbeddedError(
                f"This use of {self.directory} was closed, or belongs to the parent of this "
                "forked process. Open the directory again."
            )

    def _join(self) -> bool:
        conninfo = _running_conninfo(self._layout, DATABASE)
        if conninfo is None or not _answers(conninfo):
            return False
        self._conninfo = conninfo
        return True


def open_embedded(
    directory: str | os.PathLike[str],
    *,
    timeout_s: float = 60.0,
    settings: Mapping[str, str] | None = None,
    binaries: Binaries | None = None,
    modes: tuple[Mode, ...] | None = None,
) -> EmbeddedServer:
    """Join the directory's server, starting it, and making its cluster, if need be.

    settings: PostgreSQL's, by name; they hold while a server that this user starts is running,
    and are ignored when it joins one. binaries, modes: instead of the first that
    fit. Raises DirectoryRefused (not ours, another user's, another version's), InvalidValue (no
    such path or setting), EmbeddedStartFailed (quoting the log), EmbeddedError (time ran out).
    """
    options = Options(settings=_checked(settings or {}), binaries=binaries, modes=modes)
    deadline = Deadline(timeout_s)
    layout = claim_directory(directory)
    return EmbeddedServer(layout, options, deadline)


def stop_embedded(
    directory: str | os.PathLike[str], *, timeout_s: float = 30.0, force: bool = False
) -> bool:
    """Stop the directory's server; False when it was not running.

    Raises EmbeddedError when it is in use, unless forced: then its users lose their
    connections, and may start it again. What was committed durably is kept either way.
    """
    layout = existing_directory(directory)
    if layout is None or not is_running(layout):
        return False
    deadline = Deadline(timeout_s)
    with exclusively(layout.change_lock, deadline):
        users = FileLock(layout.users_lock)
        try:
            if not (users.try_exclusive() or force):
                raise EmbeddedError(
                    f"The server of {layout.directory} is in use (by pids "
                    f"{holder_pids(layout.users_lock)}). Close those, or use force."
                )
            return stop_server(layout, deadline, hard=force)
        finally:
            users.release()


def embedded_status(directory: str | os.PathLike[str]) -> EmbeddedStatus:
    """Describe the directory's server; nothing is started, waited for, or made but a lock file.

    Raises DirectoryRefused for a directory that is not ours.
    """
    layout = existing_directory(directory)
    if layout is None:
        layout = Layout(Path(directory).expanduser().resolve())
        return _status(layout, running=False)
    return _status(layout, running=is_running(layout))


def _status(layout: Layout, *, running: bool) -> EmbeddedStatus:
    found = running_pid_file(layout) if running else None
    return EmbeddedStatus(
        directory=layout.directory,
        running=running,
        pid=found.pid if found else None,
        version=layout.cluster_major(),
        socket_directory=found.socket_directory if found else None,
        users=holder_pids(layout.users_lock),
        log=layout.log,
    )


def _checked(settings: Mapping[str, str]) -> dict[str, str]:
    for name in settings:
        if name in _FIXED_SETTINGS or not _SETTING_NAME.match(name):
            raise InvalidValue(
                f"{name!r} is not a setting of PostgreSQL that open_embedded takes; "
                f"names are lower case, and not {', '.join(sorted(_FIXED_SETTINGS))}."
            )
    return dict(settings)


def _bring_up(layout: Layout, options: Options, deadline: Deadline) -> bool:
    """Under change.lock: make the server answer; True if it had to be started.

    When run.lock is held, a server is running, starting or stopping, or has left processes behind:
    wait until it either answers or is gone.
    """
    run = FileLock(layout.run_lock)
    grace = Deadline(min(_ORPHAN_GRACE_S, deadline.left_s() / 2))

    def free_or_answering() -> bool:
        if run.try_exclusive() or _prepared(layout):
            return True
        if grace.passed():
            end_orphans(layout)
        return False

    try:
        if not poll_until(free_or_answering, deadline):
            raise _unreachable(layout, deadline)
        if not run.try_exclusive():
            return False
        offset = launch_server(layout, run, options, deadline)
    finally:
        run.close()
    _wait_ready(layout, offset, deadline)
    return True


def _wait_ready(layout: Layout, offset: int, deadline: Deadline) -> None:
    ended = False

    def ready_or_ended() -> bool:
        nonlocal ended
        ended = not is_running(layout)
        return ended or _prepared(layout)

    if not poll_until(ready_or_ended, deadline):
        raise EmbeddedStartFailed(
            f"PostgreSQL in {layout.directory} did not answer within {deadline.timeout_s:g} s; it "
            f"is still starting and may be recovering. Open it again, with a longer time-out. "
            f"Its last words:\n{log_tail(layout, offset)}"
        )
    if ended and not stumbled(layout, offset):  # else the caller starts it again
        raise EmbeddedStartFailed(
            f"PostgreSQL ended while starting in {layout.directory}. Its last words:\n"
            f"{log_tail(layout, offset)}\nMend that, then open the directory again."
        )


def _unreachable(layout: Layout, deadline: Deadline) -> EmbeddedError:
    found = read_identity(layout.run_lock)
    if found is not None and found.alive():
        what = f"a PostgreSQL (pid {found.pid}) runs there, but does not answer from here"
    else:
        what = "processes that this one cannot see, or remains of a killed server, use it"
    return EmbeddedError(
        f"{layout.directory} could not be opened within {deadline.timeout_s:g} s: {what}. It may "
        f"belong to another container, or be stopping; its log:\n{log_tail(layout)}"
    )


def _running_conninfo(layout: Layout, database: str) -> str | None:
    found = running_pid_file(layout)
    if found is None or not found.ready:  # asking sooner would only fill the log
        return None
    return make_conninfo(
        host=str(found.socket_directory),
        hostaddr="",  # or libpq takes PGHOSTADDR
        port=PORT,
        dbname=database,
        user=SUPERUSER,
    )


def _answers(conninfo: str) -> bool:
    try:
        psycopg.connect(conninfo, connect_timeout=_CONNECT_TIMEOUT_S).close()
    except psycopg.OperationalError as error:
        # A full server lives; libpq gives no SQLSTATE for a refused connection.
        return any(words in str(error) for words in _FULL)
    return True


def _prepared(layout: Layout) -> bool:
    """Whether the server answers; then its database exists too, made if need be."""
    conninfo = _running_conninfo(layout, "postgres")
    if conninfo is None:
        return False
    try:
        connection = psycopg.connect(conninfo, connect_timeout=_CONNECT_TIMEOUT_S, autocommit=True)
    except psycopg.OperationalError:
        return False
    with connection:
        return _has_database(layout, connection)


def _has_database(layout: Layout, connection: psycopg.Connection) -> bool:
    """Create ours unless it exists; False if the server ended meanwhile."""
    query = "select 1 from pg_catalog.pg_database where datname = %s"
    create = sql.SQL("create database {}").format(sql.Identifier(DATABASE))
    try:
        if connection.execute(query, [DATABASE]).fetchone() is None:
            connection.execute(create)
    except psycopg.Error as error:
        if connection.closed:
            return False
        raise EmbeddedStartFailed(
            f"PostgreSQL started in {layout.directory}, but could not create the database "
            f"{DATABASE}: {error}\n{log_tail(layout)}\nMend that, then open it again."
        ) from error
    return True
