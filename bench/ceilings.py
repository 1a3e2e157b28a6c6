"""What the machine yields without any queue: pgbench's INSERT, and pg_test_fsync."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench.results import Result
from onceq.engine.embedded import find_binaries
from onceq.errors import EmbeddedError

if TYPE_CHECKING:
    from bench.scene import Scene

CLIENTS = (1, 4, 16)
NAMES = ("ceiling/fdatasync", *(f"ceiling/insert-{clients}" for clients in CLIENTS))
INSERT_S = 2
ROUNDS = 3
INSERT = "insert into incoming (body) values (decode(repeat('78', 200), 'hex'));\n"
TPS = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
FDATASYNC = re.compile(r"^\s+fdatasync\s+([\d.]+) ops/sec", re.MULTILINE)


def run(scene: Scene) -> None:
    """Measure all of them, three times."""
    with scene.ground("ceilings") as ground:
        _fdatasync(scene)
        conninfo = ground.database("ceilings")
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(
                "create table incoming (id bigint generated always as identity"
                " primary key, body bytea not null)"
            )
        for clients in CLIENTS:
            _insert(scene, conninfo, clients)


def program(name: str) -> Path | None:
    """Return a program of PostgreSQL: of the embedded binaries, on PATH, or Debian's newest."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    with contextlib.suppress(EmbeddedError):  # if there are none, PATH may have it
        places.insert(0, find_binaries().program(name))
    found = shutil.which(name)
    candidates = [*places[:1], *([Path(found)] if found else []), *places[1:]]
    return next((path for path in candidates if path.exists()), None)


def _fdatasync(scene: Scene) -> None:
    result = Result(name=NAMES[0], question="fdatasync of one 8 kB write", unit="/s")
    scene.told.started(result.name)
    scene.told.found(_measured(result, "pg_test_fsync", FDATASYNC, _fsync_arguments(scene)))


def _fsync_arguments(scene: Scene) -> list[str]:
    return ["-s", "1", "-f", str(scene.directory / "fsync")]


def _insert(scene: Scene, conninfo: str, clients: int) -> None:
    script = scene.directory / "insert.sql"
    script.write_text(INSERT)
    result = Result(
        name=f"ceiling/insert-{clients}",
        question=f"pgbench: INSERT of 200 bytes, {clients} clients",
        unit="/s",
    )
    scene.told.started(result.name)
    threads = min(clients, os.cpu_count() or 1)
    arguments = ["-n", "-M", "prepared", "-f", str(script), "-T", str(INSERT_S)]
    arguments += ["-c", str(clients), "-j", str(threads), conninfo]
    scene.told.found(_measured(result, "pgbench", TPS, arguments))


def _measured(result: Result, name: str, pattern: re.Pattern[str], arguments: list[str]) -> Result:
    path = program(name)
    if path is None:
        return Result(name=result.name, question=result.question, skipped=f"no {name} here")
    rounds: list[float] = []
    for _ in range(ROUNDS):
        said = subprocess.run(
            [str(path), *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        found = pattern.search(said.stdout)
        if said.returncode or found is None:
            error = f"{name}: exit code {said.returncode}: {said.stderr.strip()[-300:]}"
            return Result(name=result.name, question=result.question, error=error)
        rounds.append(float(found[1]))
    return Result(
        name=result.name, question=result.question, unit=result.unit, rounds=tuple(rounds)
    )
