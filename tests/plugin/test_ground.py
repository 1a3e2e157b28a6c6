"""What a killed test process leaves in memory is removed by the next run, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onceq.engine.embedded import open_embedded
from proof.running import MEMORY, MEMORY_BYTES_MIN, folder
from tests import ground
from tests.parts import wait_until

if TYPE_CHECKING:
    import pytest

KILLED = """
import os, signal, sys
from onceq.engine.embedded import open_embedded
server = open_embedded(sys.argv[1])
print(server.postmaster_pid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_running(cluster: Path) -> Path:
    """Lets a process start PostgreSQL and die; returns that of PostgreSQL, in /proc."""
    command = [sys.executable, "-c", KILLED, str(cluster)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Path(f"/proc/{done.stdout.strip()}")


def test_what_a_killed_process_left_is_removed_with_its_postgresql(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f"onceq-tests-{ended.pid}-abc_1"
    others = {f"onceq-tests-{os.getpid()}-abc_1", f"onceq-tests-{ended.pid}", "onceq-tests-abc_1"}
    for name in (*others, left.name):
        (tmp_path / name).mkdir()
    with open_embedded(left / ground.CLUSTER):
        ground.sweep(tmp_path)
        assert f"{left} stays: " in capsys.readouterr().err
    running = left_running(left / ground.CLUSTER)
    assert running.exists()
    ground.sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == others
    wait_until(lambda: not running.exists())
    assert capsys.readouterr().err == ""


def test_each_process_of_a_run_needs_room_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def asking(*, in_memory: bool, bytes_min: int) -> Path:
        assert in_memory
        asked.append(bytes_min)
        return folder(in_memory=False)

    monkeypatch.setattr(ground, "folder", asking)
    for processes in (1, 4):
        ground.made(processes).rmdir()
    assert asked == [ground.EACH_BYTES, 4 * ground.EACH_BYTES]
    assert MEMORY_BYTES_MIN <= 4 * ground.EACH_BYTES
    assert folder(in_memory=True, bytes_min=1 << 60) != MEMORY
