"""Runs one PostgreSQL program as a program of its own: `python -I -S -X utf8 launch.py SPEC`.

Run by a command of `privileges` in a clean single-threaded interpreter, because what it does
between fork and exec (sessions, user namespaces, capabilities) is unsafe in a process
that has threads. It imports only the standard library and nothing of onceq.
SPEC is JSON: argv, mode, uid, gid, detach, run_fd.
"""

import ctypes
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any

CLONE_NEWUSER = 0x10000000
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


def main(spec: dict[str, Any]) -> None:
    """Shed root, detach if asked, and become the program."""
    os.umask(0o077)
    os.chdir("/")
    _shed_root(spec["mode"], spec["uid"], spec["gid"])
    if spec["detach"]:
        _detach(spec["run_fd"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; exec would keep that
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.execv(spec["argv"][0], spec["argv"])  # noqa: S606 - no shell is the point


def _shed_root(mode: str, uid: int, gid: int) -> None:
    if mode == "namespace":
        _enter_user_namespace(uid, gid)
    elif mode == "unprivileged":
        _become(uid, gid)


def _enter_user_namespace(uid: int, gid: int) -> None:
    """Stay root to the file system outside, be `uid` to ourselves, without capabilities."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1", encoding="ascii")


def _become(uid: int, gid: int) -> None:
    """Become `uid`, keeping one capability, DAC_OVERRIDE, to traverse root's directories.

    It must count for access(2) too, with which PostgreSQL looks for its own programs: for a user
    other than root that ignores capabilities, unless told otherwise. Where it cannot be told, as
    without SETPCAP, the programs must be where everybody may go.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0)
    libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    bit = 1 << CAP_DAC_OVERRIDE
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    kept = libc.capset(header, struct.pack("=6I", bit, bit, bit, 0, 0, 0)) == 0
    if not (kept and libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0) == 0):
        raise OSError(ctypes.get_errno(), "the capability DAC_OVERRIDE cannot be kept")


def _detach(run_fd: int) -> None:
    """Continue in a grandchild of the caller, in a session of its own.

    The child's identity is written before the caller learns that this process has ended.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        return
    try:
        os.pwrite(run_fd, identity(child).encode().ljust(128), 0)
    except OSError as error:
        os.kill(child, signal.SIGKILL)
        os.write(2, f"cannot write run.lock: {error}\n".encode())
        os._exit(1)
    os._exit(0)


def identity(pid: int) -> str:
    """Pid, start in ticks since boot, and boot id: never the same for two processes.

    Without /proc it is the pid alone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return f"{pid} - -"  # no /proc: the pid alone
    return f"{pid} {stat.rpartition(')')[2].split()[19]} {boot.strip()}"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
