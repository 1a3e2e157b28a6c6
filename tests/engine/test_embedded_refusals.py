"""Directories that are refused, and why; nothing in them is changed."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceq.engine.embedded import (
    embedded_status,
    find_binaries,
    open_embedded,
    sockets,
    stop_embedded,
)
from onceq.errors import DirectoryRefused, EmbeddedError, EmbeddedStartFailed, InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's; that of tmp_path may not."""
    with tempfile.TemporaryDirectory(prefix="onceq-") as directory:
        yield Path(directory)


def foreign_directory(tmp_path: Path) -> Path:
    """A directory of another user: root's, or for root a directory given away."""
    if os.geteuid() != 0:
        return Path("/etc")
    directory = tmp_path / "given"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    return directory


def test_a_directory_with_other_things_in_it(fresh: Path) -> None:
    fresh.mkdir()
    (fresh / "thesis.txt").write_text("irreplaceable")
    for refused in (open_embedded, stop_embedded, embedded_status):
        with pytest.raises(DirectoryRefused, match=r"not an onceq directory.*'thesis.txt'"):
            refused(fresh)
    assert [entry.name for entry in fresh.iterdir()] == ["thesis.txt"]
    (fresh / "thesis.txt").unlink()


def test_a_cluster_that_onceq_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("18\n")
    with pytest.raises(DirectoryRefused, match="PG_VERSION"):
        open_embedded(tmp_path)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for inside in (path, path / "data"):
        with pytest.raises(DirectoryRefused, match=r"file.* not a directory"):
            open_embedded(inside)
        with pytest.raises(DirectoryRefused):
            stop_embedded(inside)


def test_a_directory_of_another_user(tmp_path: Path) -> None:
    directory = foreign_directory(tmp_path)
    with pytest.raises(DirectoryRefused, match=r"belongs to user .* this process runs as"):
        open_embedded(directory)


def test_a_directory_that_others_may_write(directory: Path) -> None:
    directory.chmod(0o777)
    with pytest.raises(DirectoryRefused, match=r"writable by others.*chmod 700"):
        open_embedded(directory)
    directory.chmod(0o700)


def test_an_empty_directory_is_adopted_and_closed_to_others(fresh: Path) -> None:
    fresh.mkdir(mode=0o755)
    (fresh / "lost+found").mkdir()
    assert not stop_embedded(fresh)
    with open_embedded(fresh):
        assert fresh.stat().st_mode & 0o777 == 0o700


def test_a_directory_of_a_newer_layout(directory: Path) -> None:
    marker = directory / "onceq-embedded"
    text = marker.read_text()
    marker.write_text("layout 2\n")
    with pytest.raises(DirectoryRefused, match=r"layout 2.*knows layout 1"):
        open_embedded(directory)
    marker.write_text(text)


def test_a_cluster_of_a_version_that_is_not_here(directory: Path) -> None:
    version = directory / "cluster" / "PG_VERSION"
    version.write_text("9999\n")
    with pytest.raises(DirectoryRefused, match=r"made by PostgreSQL 9999, but .* are 18 "):
        open_embedded(directory)
    version.write_text("18\n")
    with pytest.raises(DirectoryRefused, match=r"made by PostgreSQL 18, but .* are 16 "):
        open_embedded(directory, binaries=find_binaries(16))


@pytest.mark.parametrize("text", [None, "eighteen\n"])
def test_a_damaged_cluster(directory: Path, text: str | None) -> None:
    version = directory / "cluster" / "PG_VERSION"
    version.unlink()
    if text is not None:
        version.write_text(text)
    with pytest.raises(DirectoryRefused, match="the cluster is damaged"):
        open_embedded(directory)
    version.unlink(missing_ok=True)
    version.write_text("18\n")


@pytest.mark.parametrize("path", ["new\nline", "nul\0", "~no-such-user-here/data", "x/" * 400])
def test_paths_that_cannot_be(path: str) -> None:
    with pytest.raises(InvalidValue, match="Name a"):
        open_embedded(path)


@pytest.mark.parametrize("name", ["listen_addresses", "data_directory", "Work_Mem", "-c", ""])
def test_settings_that_are_not_the_callers(fresh: Path, name: str) -> None:
    with pytest.raises(InvalidValue, match="not a setting"):
        open_embedded(fresh, settings={name: "x"})
    assert not fresh.exists()


def test_a_long_temporary_directory_is_passed_over(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 25)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with open_embedded(directory):
        found = embedded_status(directory).socket_directory
        assert found is not None
        assert deep not in found.parents


def test_a_runtime_directory_is_preferred(
    directory: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    with open_embedded(directory) as server:
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        found = embedded_status(directory).socket_directory
        assert found is not None
        assert found.parent == short / "onceq"
        with open_embedded(directory) as other:
            assert other.conninfo == server.conninfo


def test_no_place_for_the_socket(fresh: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, taken = short / "shared", short / "taken"
    shared.mkdir()
    shared.chmod(0o755)
    taken.touch()
    bases = [shared, taken, short / "a,b", short / ("long" * 20)]
    monkeypatch.setattr(sockets, "_bases", lambda: iter(bases))
    with pytest.raises(EmbeddedError, match="No place for the Unix socket") as raised:
        open_embedded(fresh)
    for fault in ("open to other users", "File exists", "cannot hold", "longer than 103"):
        assert fault in str(raised.value)


def test_a_setting_that_postgresql_refuses_is_quoted_from_its_log(directory: Path) -> None:
    with pytest.raises(EmbeddedStartFailed, match="invalid value for parameter") as raised:
        open_embedded(directory, settings={"shared_buffers": "a lot"})
    assert str(directory / "postgres.log") in str(raised.value)
    assert not embedded_status(directory).running
    open_embedded(directory).close()


def test_a_log_that_has_grown_is_put_aside(directory: Path) -> None:
    log = directory / "postgres.log"
    with log.open("ab") as file:
        file.truncate(11 * 1024 * 1024)
    open_embedded(directory).close()
    assert 0 < log.stat().st_size < 10_000
    assert (directory / "postgres.log.1").stat().st_size >= 11 * 1024 * 1024
    (directory / "postgres.log.1").unlink()


def test_a_host_that_is_not_an_interpreter_needs_one_on_path(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/sbin/some-server")
    if shutil.which("python3"):
        open_embedded(fresh).close()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EmbeddedError, match=r"No python3 on PATH.*some-server"):
        open_embedded(fresh)
