"""A disk that is full: the error says so, and room mends it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceq.engine.embedded import open_embedded, stop_embedded
from onceq.errors import EmbeddedError
from tests.engine.embedded_children import Child

# Opens argv[1] with files limited to argv[2] bytes, as on a disk that takes no more.
LIMITED = """
import resource, signal, sys
from onceq.engine.embedded import open_embedded
from onceq.errors import EmbeddedStartFailed
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    open_embedded(sys.argv[1], timeout_s=60)
except EmbeddedStartFailed as error:
    print("refused:", repr(str(error)), flush=True)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 96 MB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", str(disk)]
    allowed = (
        os.geteuid() == 0
        and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    )
    yield disk if allowed else None
    if allowed:
        stop_embedded(disk / "data", force=True)
        subprocess.run(["umount", str(disk)], check=True)


def test_a_cluster_that_does_not_fit_is_not_left_half_made(fresh: Path) -> None:
    with Child(LIMITED, fresh, 1_000_000) as child:
        said = child.line()
    assert said.startswith("refused:")
    assert "initdb failed" in said
    assert "kB free" in said
    assert not list(fresh.glob("cluster*"))
    open_embedded(fresh).close()


def test_a_server_that_cannot_write_says_why(directory: Path) -> None:
    with Child(LIMITED, directory, 8) as child:
        said = child.line()
    assert said.startswith("refused:")
    open_embedded(directory).close()


def test_a_full_disk(small_disk: Path | None, tmp_path: Path) -> None:
    """With a real file system where mounting is allowed; the limit above stands in elsewhere."""
    if small_disk is None:
        assert not os.path.ismount(tmp_path / "disk")
        return
    filler = small_disk / "filler"
    fill(filler, leave=20_000_000)
    with pytest.raises(EmbeddedError, match=r"initdb failed(.|\n)*(No space left|free disk space)"):
        open_embedded(small_disk / "data")
    filler.unlink()
    open_embedded(small_disk / "data").close()
    fill(filler, leave=0)
    with pytest.raises(EmbeddedError, match=r"No space left|\b0 kB free"):
        open_embedded(small_disk / "data")
    filler.unlink()
    open_embedded(small_disk / "data").close()


def fill(path: Path, *, leave: int) -> None:
    found = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - leave)
