"""Other processes for the tests of the embedded server: they open it, and are killed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).parents[2] / "src"

# Opens argv[1], says which server that is, and closes it when told, or when killed not.
OPEN = """
import sys
from onceq.engine.embedded import open_embedded
server = open_embedded(sys.argv[1], timeout_s=60)
print(server.postmaster_pid(), flush=True)
sys.stdin.readline()
server.close()
print("closed", flush=True)
"""


class Child:
    """A Python process that runs `code` with `arguments`; killed on leaving."""

    def __init__(self, code: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path])},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, timeout_s: float = 120.0) -> str:
        """The next line that it writes; it must come in time."""
        ready, _, _ = select.select([self._stdout], [], [], timeout_s)
        assert ready, "the child said nothing"
        return self._stdout.readline().decode().strip()

    def go_on(self) -> None:
        self._stdin.write(b"\n")
        self._stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._stdin.close()
        self._stdout.close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.002)
