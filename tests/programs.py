"""Programs that a test runs to their end; one that does not end says where it stood."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WITH_JAVA_S: Final = 280.0
"""For a program that starts a Spark: 36 s of processor time alone, among the other tests."""


def run_python(
    words: list[str], *, cwd: Path, env: Mapping[str, str], limit_s: float = WITH_JAVA_S
) -> subprocess.CompletedProcess[str]:
    """What Python did with these words; a failure with its threads' places after `limit_s`."""
    program = subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env={**env, "PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said, complained = program.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.kill(program.pid, signal.SIGABRT)
        try:
            said, complained = program.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # a child of its own holds the pipe
            said, complained = "", "and what it said was not to be had"
        pytest.fail(f"{words} had not ended after {limit_s} s\n{said}\n{complained}")
    finally:
        program.kill()
        program.wait()
    return subprocess.CompletedProcess(program.args, program.returncode, said, complained)
