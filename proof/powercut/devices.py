"""Loop devices, mounts, and copies of a file at one instant.

For this package only. Invariants: a loop device is told to go as soon as it is mounted, so that it
goes with its mount, whoever unmounts it. Everything is mounted below a run's own directory, whose
file IMAGE is under all of it and whose LOCK is held while the run lives. So `end_leftovers` finds
what a dead run has left by those names, and ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from onceq.engine.embedded import stop_embedded
from onceq.engine.embedded.locks import Deadline, is_locked, poll_until
from onceq.errors import DirectoryRefused

IMAGE: Final = "onceq-power-cut.img"
LOCK: Final = "onceq-power-cut.lock"
CLUSTER: Final = "postgresql"
"""The directory of PostgreSQL on every file system here that has one."""

PROGRAMS = ("mkfs.xfs", "mkfs.ext4", "losetup", "mount", "umount")

_FICLONE = 0x40049409  # of linux/fs.h: what `cp --reflink=always` calls
_UNMOUNT_S = 120.0
_COMMAND_S = 60.0
_PATH = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
_OCTAL = re.compile(r"\\([0-7]{3})")


class DeviceFailed(Exception):
    """A device, file system or mount could not be made."""


class StillBusy(Exception):
    """A mount could not be let go: somebody is still using it."""


def command(*words: str | Path) -> str:
    """Runs a program to its end and returns what it printed. Raises DeviceFailed."""
    done = subprocess.run(
        [str(word) for word in words],
        env=_PATH,
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().replace("\n", " ")
        raise DeviceFailed(f"{words[0]} ended with status {done.returncode}: {said}")
    return done.stdout.strip()


def missing() -> str | None:
    """Returns what this machine obviously lacks; None if it is worth a try."""
    if os.geteuid() != 0:
        return "loop devices and mounts need root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH["PATH"]) is None]
    if absent:
        return f"{', '.join(absent)} not found (xfsprogs, e2fsprogs, mount have them)"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices here"
    return None


def mount(image: Path, at: Path, *options: str, direct: bool) -> None:
    """Mounts the file system in a file through a loop device.

    direct: what reaches the device is in the file at once, not in the page cache of the file
    system that holds it. Raises DeviceFailed, also where direct input and output is not to be had.
    """
    at.mkdir(exist_ok=True)
    mode = "on" if direct else "off"
    device = command("losetup", "--find", "--show", f"--direct-io={mode}", image)
    try:
        _check(Path("/sys/block") / Path(device).name, direct=direct)
        command("mount", "-o", ",".join(("noatime", *options)), device, at)
    finally:
        command("losetup", "--detach", device)  # when it is unmounted, or at once if it never was


def _check(device: Path, *, direct: bool) -> None:
    """Raises DeviceFailed unless the device does what the model of a disk depends on.

    A flush is passed on to the file, unless its last user told the device not to.
    """
    cache = (device / "queue" / "write_cache").read_text(encoding="ascii").strip()
    told = (device / "loop" / "dio").read_text(encoding="ascii").strip()
    if told != str(int(direct)) or cache != "write back":
        raise DeviceFailed(f"{device.name} has direct input and output {told}, cache {cache}")


def unmount(at: Path) -> None:
    """Unmounts a file system; waits a while for its last users to end. Raises StillBusy."""
    said = ""

    def unmounted() -> bool:
        nonlocal said
        try:
            command("umount", at)
        except DeviceFailed as error:
            said = str(error)
            return False
        return True

    if not poll_until(unmounted, Deadline(_UNMOUNT_S)):
        raise StillBusy(said)


def clone(source: Path, target: Path) -> None:
    """Makes a file that shares every block with another, as that was at one instant (reflink).

    The file system keeps writers out meanwhile, and waits for writes that are under way.
    """
    with source.open("rb") as old, target.open("xb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())


def mounts_below(top: Path) -> list[Path]:
    """Returns what is mounted below a directory, the latest first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    places = [Path(_OCTAL.sub(_character, line.split()[4])) for line in lines]
    return [place for place in reversed(places) if top in place.parents]


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1], 8))


def let_go(at: Path) -> None:
    """Ends the PostgreSQL of a file system, if one runs, and unmounts it. Raises StillBusy."""
    if (at / CLUSTER).is_dir():
        with contextlib.suppress(DirectoryRefused):  # half deleted, by who ended what ran there
            stop_embedded(at / CLUSTER, force=True)
    unmount(at)


def end(top: Path) -> None:
    """Lets go of everything below a run's directory, and removes its file."""
    for place in mounts_below(top):
        let_go(place)
    (top / IMAGE).unlink(missing_ok=True)


def end_leftovers() -> list[Path]:
    """Ends what runs have left that were killed; returns their directories."""
    listed = command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").splitlines()
    images = {Path(line.strip().removesuffix(" (deleted)")) for line in listed}
    left = sorted(image.parent for image in images if image.name == IMAGE)
    dead = [top for top in left if not (top.is_dir() and is_locked(top / LOCK))]
    for top in dead:
        end(top)
    return dead
