"""Building a Spark session with the settings that onceq relies on.

Called by `onceq.spark.Server`, the command line and the tests. A program that
has a session of its own does not need it, if it sets `REQUIRED_SETTINGS`.

Invariants: nothing is written into the current directory; a local session binds
only to loopback and its Python processes run this interpreter with this
sys.path; the process environment is changed only while Java starts. It stops no
session that it is not told to stop, and it writes no secret into a setting.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import uuid
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onceq import errors
from onceq.spark.start.java import find_java
from onceq.spark.start.scratch import claim_scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "REQUIRED_SETTINGS",
    "activate",
    "build_session",
    "has_java",
    "is_local",
    "is_local_here",
    "java_failures",
    "refuse_dead",
    "register_own",
    "session_settings",
    "stop_session",
]

LOCAL_MASTER = "local[2]"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# What the sources and sinks need, wherever the session comes from.
REQUIRED_SETTINGS: Mapping[str, str] = {
    # Without it a Python reader that has pushFilters is refused.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Timestamps travel as UTC microseconds; any other zone shifts naive values.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}

DEFAULT_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}

# Writes a checkpoint file without starting chmod and stat for each: 110 of 280 ms a batch.
CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # 200 is for clusters; each partition of a small batch costs a file or two.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
}

# Warnings and errors go to stderr in one line each, without notices about defaults, and without
# that about a query that was stopped while none of its jobs ran.
LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
appender.stderr.filter.stop.type = RegexFilter
appender.stderr.filter.stop.regex = Failed to cancel job group .*Cannot find active jobs.*
appender.stderr.filter.stop.onMatch = DENY
appender.stderr.filter.stop.onMismatch = NEUTRAL
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.shell.name = org.apache.hadoop.util.Shell
logger.shell.level = error
logger.adaptive.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.adaptive.level = error
logger.sources.name = org.apache.spark.sql.execution.datasources.DataSourceManager
logger.sources.level = error
"""


def build_session(
    name: str = "onceq",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in this process, or join the session that runs here already.

    `master` None means local with two threads; `settings` win over every default.
    When it joins a running session, only settings that Spark lets change at run time
    take effect. Starting takes 4 to 10 s and about 1 GiB; the session ends with
    `stop()` or with the process. Main thread: Spark takes over SIGINT.
    Raises MissingExtra without PySpark or Java, EnvironmentFault if Java starts
    but does not come up; nothing happened. Source: spark.md; spec P1.
    """
    builder = _load_builder()
    java = find_java(os.environ)
    chosen = master or LOCAL_MASTER
    scratch = claim_scratch()
    builder = builder.appName(name).master(chosen)
    for key, value in session_settings(chosen, scratch, settings).items():
        builder = builder.config(key, value)
    with _environment(_launch_environment(chosen, java.home, scratch)):
        return _start(builder, f"Java {java.major} at {java.home}")


def session_settings(
    master: str, scratch: Path, settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return every setting of a session for `master`, keeping its files in `scratch`.

    Writes the logging settings there. `settings` win, but Java options are added to ours.
    """
    logging = scratch / "log4j2.properties"
    logging.write_text(LOG4J)
    chosen = {
        **DEFAULT_SETTINGS,
        **REQUIRED_SETTINGS,
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
    }
    if _is_local(master):
        chosen |= LOCAL_SETTINGS
        # What this process can import by name, its Python workers can too.
        chosen["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(
            str(Path(entry).resolve()) for entry in sys.path
        )
    chosen |= dict(settings or {})
    # Added to, not replaced: without ours Spark's files would go to /tmp for good.
    own = (
        f'"-Djava.io.tmpdir={scratch}" "-Dderby.system.home={scratch}" '
        f'"-Dlog4j2.configurationFile={logging.as_uri()}"'
    )
    chosen[JAVA_OPTIONS] = f"{own} {chosen.get(JAVA_OPTIONS, '')}".rstrip()
    return chosen


def register_own(session: SparkSession, data_source: str) -> str:
    """Register a data source, `module:Class`, under a name that no other query has; return it.

    Spark keeps one function by name, and a query that begins writes into that function's
    environment, a HashMap, without a lock (Spark 4.3.0, PythonStreamingSourceRunner). Two that
    began at once under one name could leave a map that no task can read, for as long as the
    session lives: each batch fails, and in the end its requests are charged.
    """
    module, _, kind = data_source.partition(":")
    base = getattr(importlib.import_module(module), kind)
    name = f"onceq-{uuid.uuid4().hex}"
    session.dataSource.register(type(kind, (base,), {"name": classmethod(lambda _: name)}))
    return name


def activate(session: SparkSession) -> None:
    """Make a session the active one of this thread, where Spark looks for Python sources.

    Raises InvalidValue for one of Spark Connect.
    """
    refuse_connect(session)
    session.createDataFrame([(0,)], "nothing int")  # pyright: ignore[reportUnknownMemberType] # its types are partial


def refuse_connect(session: SparkSession) -> None:
    """Raise InvalidValue for one of Spark Connect: onceq supervises a query of its own process."""
    if ".connect." in type(session).__module__:
        raise errors.InvalidValue(
            "this is a session of Spark Connect, which onceq does not serve with: give one that "
            "runs in this process, on a cluster by its master"
        )


def is_local(session: SparkSession) -> bool:
    """Return whether a session's executors run on this machine."""
    return _is_local(str(session.sparkContext.master))


def is_local_here() -> bool:
    """Return whether the executors of the session active here, if any, are also here."""
    found = importlib.import_module("pyspark.sql").SparkSession.getActiveSession()
    return found is None or is_local(found)


def has_java(session: SparkSession) -> bool:
    """Return whether the Java of a session is still there: it may have been killed."""
    # A context that was stopped has no Java, and says so by AttributeError.
    gone: tuple[type[Exception], ...] = (*java_failures(), AttributeError)
    try:
        return bool(session.sparkContext.defaultParallelism)
    except gone:
        return False


def refuse_dead(session: SparkSession, error: Exception | None = None) -> None:
    """Raises IllegalState when a session was stopped; EnvironmentFault when its Java has died."""
    if has_java(session):
        return
    if vars(session.sparkContext).get("_jsc") is None:
        raise errors.IllegalState(
            "Spark's session was stopped, by spark.stop(): stop what runs in it first, a server by "
            "its stop(), and build a session to start again; no request is lost, and what was "
            "under way is run again"
        ) from error
    raise errors.EnvironmentFault(
        "Spark's Java has died (killed, or out of memory): start again; no request is lost, and "
        "what was under way is run again"
    ) from error


def stop_session(session: SparkSession) -> None:
    """Stop a session, whose Java may already be gone."""
    with contextlib.suppress(*java_failures()):
        session.stop()


def java_failures() -> tuple[type[Exception], ...]:
    """Return what a call of Java raises if it fails, or if there is no Java."""
    return (importlib.import_module("py4j.protocol").Py4JError, ConnectionError)


def _is_local(master: str) -> bool:
    return re.match(r"local(-cluster)?(\[|$)", master) is not None


def _launch_environment(master: str, java_home: Path, scratch: Path) -> dict[str, str]:
    changes = {"JAVA_HOME": str(java_home)}
    if _is_local(master):
        changes["SPARK_HOME"] = os.environ.get("SPARK_HOME") or str(_make_home(scratch))
        changes["PYSPARK_PYTHON"] = sys.executable
        changes["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        # On a cluster the interpreter's path may differ; the user decides.
        changes["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return changes


def _make_home(scratch: Path) -> Path:
    """Make a home for Spark without its zip of PySpark; its Python processes import this one then.

    What is installed is compiled. Of the zip each process compiles what it imports.
    """
    home = scratch / "home"
    home.mkdir()
    for part in Path(str(importlib.import_module("pyspark").__file__)).parent.iterdir():
        if part.is_dir() and part.name != "python":
            (home / part.name).symlink_to(part)
    return home


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Generator[None]:
    """Set variables of this process for a while: Spark takes them from nowhere else."""
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _load_builder() -> SparkSession.Builder:
    try:
        module = importlib.import_module("pyspark.sql")
    except ImportError as error:
        raise errors.MissingExtra(
            f"Spark is not installed ({error}); run `pip install 'onceq[spark]'`"
        ) from error
    builder: SparkSession.Builder = module.SparkSession.Builder()
    return builder


def _start(builder: SparkSession.Builder, java: str) -> SparkSession:
    failure = importlib.import_module("pyspark.errors").PySparkRuntimeError
    try:
        return builder.getOrCreate()
    except failure as error:
        raise errors.EnvironmentFault(
            f"Spark did not come up with {java}: {error}; what Java said is on stderr above"
        ) from error
