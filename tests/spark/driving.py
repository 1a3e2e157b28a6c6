"""Drivers of Spark as processes of their own, for tests that kill them or what they start."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from onceq.spark.start.java import find_java

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.spark.spark_parts import Repository

ROOT = Path(__file__).resolve().parents[2]


def drive(repository: Repository, faults: Path, master: str = "local[2]") -> tuple[int, str]:
    """Run a driver to its end; return its exit code and what it printed."""
    return run("tests.spark.serving_child", repository, faults, master)


def run(module: str, repository: Repository, faults: Path, *more: str) -> tuple[int, str]:
    """Run a driver of a module to its end; return its exit code and what it printed."""
    arguments = [repository.conninfo, repository.name, str(faults), *more]
    return _run([sys.executable, "-m", module, *arguments], faults)


def submit(repository: Repository, faults: Path, master: str) -> tuple[int, str]:
    """Run a driver to its end by `spark-submit`; return its exit code and what it printed."""
    tool = Path(str(pyspark.__file__)).parent / "bin" / "spark-submit"
    script = ROOT / "tests/spark/submitted.py"
    command = [str(tool), "--master", master, "--conf", "spark.ui.enabled=false", str(script)]
    return _run([*command, repository.conninfo, repository.name, str(faults)], faults)


@contextlib.contextmanager
def begin(module: str, arguments: list[str], place: Path) -> Generator[subprocess.Popen[bytes]]:
    """Begin a driver that is to be killed; its end is its user's."""
    command = [sys.executable, "-m", module, *arguments]
    with (
        (place / "errors").open("a") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=place, env=_environment()) as driver,
    ):
        try:
            yield driver
        finally:
            driver.kill()


def _environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(find_java(os.environ).home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _run(command: list[str], faults: Path) -> tuple[int, str]:
    with (faults / "errors").open("a") as log:
        ran = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=faults,
            env=_environment(),
            timeout=500,
        )
    return ran.returncode, ran.stdout
