"""Makes a cluster, and starts and stops its PostgreSQL.

For `server` only, which holds `change.lock` around every function here that changes
anything. Invariant: whoever makes or starts a cluster holds `run.lock`, and every
process that it starts inherits it; so a free `run.lock` means that nothing of an
earlier attempt is alive, and a cluster that has its final name is complete.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onceq.engine.embedded.binaries import Binaries, all_binaries, describe, find_binaries
from onceq.engine.embedded.directory import Layout, sync_directory
from onceq.engine.embedded.locks import Deadline, FileLock, is_locked, poll_until
from onceq.engine.embedded.privileges import (
    Identity,
    Mode,
    choose_identity,
    launch_command,
    launch_environment,
)
from onceq.engine.embedded.process import (
    PidFile,
    is_postmaster,
    orphans,
    pid_exists,
    read_identity,
    read_pid_file,
)
from onceq.engine.embedded.sockets import PORT, make_socket_directory, remove_socket_directory
from onceq.engine.faultpoints import faultpoint
from onceq.errors import DirectoryRefused, EmbeddedError, EmbeddedStartFailed

SUPERUSER = "onceq"

_LOG_BYTES_MAX = 10 * 1024 * 1024
_LOG_LINES_QUOTED = 12
_LOG_BYTES_QUOTED = 8192
_BUILTIN_LOCALE_SINCE = 17
_STUMBLED = re.compile(r'FATAL:  could not create file "[^"]+": File exists')
_HARD_WAYS = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)  # fast, immediate, at once

# Appended to postgresql.conf when the cluster is made; the owner may change it there.
_SETTINGS = """
# onceq
fsync = on
full_page_writes = on
synchronous_commit = on
max_connections = 200
max_prepared_transactions = 32
shared_buffers = 128MB
autovacuum = on
search_path = 'public'  # not "$user": the user and the default repository are both called onceq
client_connection_check_interval = 5s
log_line_prefix = '%m [%p] '
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a server is started; all of it is ignored when joining a running one."""

    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    binaries: Binaries | None = None
    modes: tuple[Mode, ...] | None = None


def is_running(layout: Layout) -> bool:
    """Whether any process of the cluster lives, even one that is ending."""
    return is_locked(layout.run_lock)


def running_pid_file(layout: Layout) -> PidFile | None:
    """What the running server says of itself; None if none runs or it is not that far yet.

    The pid must be the one in run.lock, whose holder was launched here: a directory
    copied while its server ran holds the other server's postmaster.pid.
    """
    if not is_running(layout):
        return None
    found = read_pid_file(layout.pid_file)
    launched = read_identity(layout.run_lock)
    if found is None or launched is None or found.pid != launched.pid:
        return None
    return found


def launch_server(layout: Layout, run: FileLock, options: Options, deadline: Deadline) -> int:
    """Start PostgreSQL, making the cluster first if there is none.

    Takes over `run`, held exclusively, and closes it. Returns where in the log this
    start begins, for `log_tail`. Does not wait for readiness.
    """
    try:
        os.ftruncate(run.fd, 0)  # the identity of an earlier server, or of a copied directory
        binaries = _choose_binaries(layout, options)
        identity = choose_identity(binaries, options.modes)
        offset = _rotate_log(layout)
        for leftover in layout.leftovers():
            shutil.rmtree(leftover)
        if layout.cluster_major() is None:
            _make_cluster(layout, binaries, identity, run=run, deadline=deadline)
        _match_owner(layout, identity)
        _clear_pid_file(layout)
        sockets = make_socket_directory(layout.directory)
        argv = _server_argv(layout, binaries, options.settings, sockets)
        command = launch_command(identity, argv, run_fd=run.fd, detach=True)
        _start(layout, command, run, deadline)
        faultpoint("embedded.launched")
    except OSError as error:
        raise EmbeddedStartFailed(
            f"PostgreSQL could not be started in {layout.directory}: {error}. "
            "Free some space or repair the directory, then open it again."
        ) from error
    finally:
        run.close()
    return offset


def stop_server(layout: Layout, deadline: Deadline, *, hard: bool = False) -> bool:
    """End every process of the cluster, cleanly; False if none was running.

    Open transactions are rolled back. With `hard`, half of the time is for a clean stop, half of
    the rest for one without a checkpoint, then the postmaster is killed; either costs a crash
    recovery at the next start. Raises EmbeddedError if it is still running at the deadline.
    """
    if not is_running(layout):
        return False
    found = running_pid_file(layout)
    faultpoint("embedded.stopping")
    ways = _HARD_WAYS if hard else _HARD_WAYS[:1]
    for number in ways:
        last = number is ways[-1]
        if _signal_and_wait(layout, number, deadline if last else deadline.half()):
            break
    else:
        raise EmbeddedError(
            f"PostgreSQL in {layout.directory} did not stop within {deadline.timeout_s:g} s; it "
            f"may still be stopping. Wait, or force it; its log is {layout.log}."
        )
    faultpoint("embedded.stopped")
    if found is not None and found.socket_directory is not None:
        remove_socket_directory(found.socket_directory)
    return True


def end_orphans(layout: Layout) -> None:
    """Ask the processes that a killed postmaster left behind to end.

    An idle one ends by itself at once; one in a long computation ends only if asked.
    """
    postmaster = read_identity(layout.run_lock)
    if postmaster is None or postmaster.alive():
        return
    for process in orphans(layout.run_lock):
        process.send(signal.SIGTERM)


def log_tail(layout: Layout, offset: int = 0) -> str:
    """The last lines of the log from `offset` on, and how much space is free."""
    text = quoted(_log_end(layout, offset))
    return f"{text}\n  ({_space(layout)}; the log is {layout.log})"


def _log_end(layout: Layout, offset: int) -> str:
    try:
        with layout.log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(offset, size - _LOG_BYTES_QUOTED))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def stumbled(layout: Layout, offset: int) -> bool:
    """Whether the start that wrote the log from `offset` on failed as only a first one does.

    If the power fails just after an UNLOGGED table or sequence was made, its main file may be on
    the disk, and the init file that empties it not yet. Recovery makes the second, and then finds
    the first in its way. The next start finds both. Source: PostgreSQL's bug 17731.
    """
    return _STUMBLED.search(_log_end(layout, offset)) is not None


def quoted(text: str) -> str:
    """The last lines of a program's output, indented for an error."""
    lines = [line for line in text.splitlines() if line.strip()][-_LOG_LINES_QUOTED:]
    return "\n".join(f"  | {line}" for line in lines) or "  | (it said nothing)"


def _space(layout: Layout) -> str:
    return f"{shutil.disk_usage(layout.directory).free // 1024} kB free on its disk"


def _choose_binaries(layout: Layout, options: Options) -> Binaries:
    """The programs that fit the cluster; DirectoryRefused, naming both versions, if none."""
    major = layout.cluster_major()
    if options.binaries is not None:
        found = [options.binaries]
    elif major is None:
        return find_binaries()
    else:
        found = list(all_binaries())
    for binaries in found:
        if major in {None, binaries.major}:
            return binaries
    raise DirectoryRefused(
        f"{layout.directory} was made by PostgreSQL {major}, but the programs here are "
        f"{describe(found)}. Install PostgreSQL {major}'s programs on PATH, or move the data "
        "with pg_dump or pg_upgrade. Nothing was changed."
    )


def _make_cluster(
    layout: Layout, binaries: Binaries, identity: Identity, *, run: FileLock, deadline: Deadline
) -> None:
    """Make the cluster under another name, then rename it: it is whole or not there."""
    staging = Path(tempfile.mkdtemp(prefix="cluster.new.", dir=layout.directory))
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, staging, ignore_errors=True)
        os.chown(staging, *identity.owner)
        # Through a pipe, not the log: initdb's commonest failure is a full disk.
        said = _run_launcher(
            launch_command(identity, _initdb_argv(binaries, staging)),
            output=subprocess.PIPE,
            run=run,
            deadline=deadline,
        )
        if said is not None:
            raise _failed(layout, "initdb", said)
        with (staging / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(_SETTINGS)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(staging)
        faultpoint("embedded.cluster_made")
        staging.rename(layout.cluster)
        faultpoint("embedded.cluster_named")
        sync_directory(layout.directory)
        undo.pop_all()


def _initdb_argv(binaries: Binaries, staging: Path) -> list[str]:
    builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return [
        str(binaries.program("initdb")),
        f"--pgdata={staging}",
        f"--username={SUPERUSER}",
        "--auth-local=trust",  # the socket's directory is private
        "--auth-host=reject",
        "--encoding=UTF8",
        "--locale=C",
        *(builtin if binaries.major >= _BUILTIN_LOCALE_SINCE else []),
        "--data-checksums",
    ]


def _server_argv(
    layout: Layout, binaries: Binaries, settings: Mapping[str, str], socket_directory: Path
) -> list[str]:
    """What the caller asked for, then what neither that nor a configuration file may change."""
    fixed = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": str(socket_directory),
        "unix_socket_permissions": "0700",
        "logging_collector": "off",
        "log_destination": "stderr",
    }
    words = [f"--{name}={value}" for name, value in {**settings, **fixed}.items()]
    return [str(binaries.program("postgres")), "-D", str(layout.cluster), *words]


def _run_launcher(
    command: list[str], *, output: int, run: FileLock, deadline: Deadline
) -> str | None:
    """Run the launcher until it ends: after the program, or once that is detached.

    None when it ended well, else how it ended, and what it wrote if `output` is a pipe.
    """
    try:
        done = subprocess.run(
            command,
            env=launch_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            pass_fds=(run.fd,),
            start_new_session=True,  # Ctrl-C in the terminal is not for it
            timeout=deadline.left_s(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took over {deadline.timeout_s:g} s"
    if done.returncode == 0:
        return None
    return f"ended with status {done.returncode}\n{quoted(done.stdout or '')}"


def _start(layout: Layout, command: list[str], run: FileLock, deadline: Deadline) -> None:
    offset = _size(layout.log)
    with _open_log(layout) as log:
        said = _run_launcher(command, output=log, run=run, deadline=deadline)
    if said is not None:
        raise _failed(layout, "the launcher of postgres", f"{said}\n{log_tail(layout, offset)}")


def _failed(layout: Layout, program: str, said: str) -> EmbeddedStartFailed:
    return EmbeddedStartFailed(
        f"{program} failed in {layout.directory} ({_space(layout)}): {said}\n"
        "Mend that, then open the directory again."
    )


def _clear_pid_file(layout: Layout) -> None:
    """Remove a stale postmaster.pid whose pid is a zombie or another process by now.

    PostgreSQL would refuse to start for as long as that is there. With a dead pid it
    clears the file itself, checking shared memory as well.
    """
    found = read_pid_file(layout.pid_file)
    if found is None or not pid_exists(found.pid):
        return
    if is_postmaster(found, layout.cluster):
        raise EmbeddedStartFailed(
            f"A PostgreSQL that onceq did not start (pid {found.pid}) runs in {layout.cluster}. "
            "Stop it with pg_ctl, then open the directory again."
        )
    layout.pid_file.unlink()


def _match_owner(layout: Layout, identity: Identity) -> None:
    """As root, hand the cluster to the user who will run it; its own directory last."""
    uid, gid = identity.owner
    if os.geteuid() != 0 or layout.cluster.stat().st_uid == uid:
        return
    for parent, directories, files in os.walk(layout.cluster, topdown=False):
        for name in (*files, *directories):
            os.chown(Path(parent) / name, uid, gid, follow_symlinks=False)
    os.chown(layout.cluster, uid, gid)


def _signal_and_wait(layout: Layout, number: signal.Signals, deadline: Deadline) -> bool:
    sent: set[str] = set()

    def stopped() -> bool:
        # Read again each time: a start that lost its starter may write it only now.
        postmaster = read_identity(layout.run_lock)
        if postmaster is not None and postmaster.identity not in sent and postmaster.alive():
            sent.add(postmaster.identity)
            postmaster.send(number)
        end_orphans(layout)
        return not is_running(layout)

    return poll_until(stopped, deadline)


def _rotate_log(layout: Layout) -> int:
    if _size(layout.log) > _LOG_BYTES_MAX:
        layout.log.replace(layout.log.with_suffix(".log.1"))
    return _size(layout.log)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def _open_log(layout: Layout) -> Generator[int, None, None]:
    fd = os.open(layout.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
