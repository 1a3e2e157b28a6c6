from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceq import errors
from onceq.spark import session
from onceq.spark.serve.server import Server
from onceq.spark.session import REQUIRED_SETTINGS, activate, register_own, session_settings
from tests.programs import run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE_LIFE = """
import os, pathlib
from onceq.spark.session import build_session
before = dict(os.environ)
spark = build_session("alone")
changed = {key for key in {*before, *os.environ} if before.get(key) != os.environ.get(key)}
assert not changed & {"JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_LOCAL_IP"}
spark.sql("create table t(a int) using parquet")
spark.sql("insert into t values (1), (2)")
print("rows", spark.table("t").count())
print("java", spark.sparkContext._jvm.java.lang.System.getProperty("java.version"))
print("left", sorted(os.listdir(".")))
spark.stop()
"""


def test_the_settings_that_the_sources_need_are_in_force(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in REQUIRED_SETTINGS} == dict(REQUIRED_SETTINGS)


def test_a_local_session_binds_to_loopback(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_workers_run_this_interpreter_and_find_what_the_driver_finds(spark: SparkSession) -> None:
    """Also its PySpark: that in the zip of Spark is not compiled, and takes half a second more."""

    def describe(_: int) -> list[str]:
        files = [importlib.import_module(name).__file__ for name in ("onceq", "pyspark", "py4j")]
        return [sys.executable, *map(str, files)]

    assert spark.sparkContext.parallelize([0], 1).map(describe).collect() == [describe(0)]


def test_two_servers_of_one_session_share_no_environment_of_python(spark: SparkSession) -> None:
    """Each query writes into its own as it begins, and no lock keeps two apart."""
    java: Any = spark._jsparkSession
    known = java.sessionState().dataSourceManager()
    names = [register_own(spark, Server.data_source) for _ in range(2)]
    one, other = (known.lookupDataSource(name).dataSourceCls().envVars() for name in names)
    one.put("ONLY", "here")
    assert one.containsKey("ONLY")
    assert not other.containsKey("ONLY")


def test_files_are_kept_in_the_scratch_directory(spark: SparkSession) -> None:
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    assert warehouse is not None
    assert f"/onceq-spark-{os.getuid()}/session-" in warehouse


def link_every_tool_but_java(tools: Path) -> None:
    for directory in reversed(os.get_exec_path()):
        for tool in Path(directory).glob("*"):
            if tool.name != "java":
                (tools / tool.name).unlink(missing_ok=True)
                (tools / tool.name).symlink_to(tool)


@pytest.mark.timeout(400)
def test_from_the_wheel_s_java_with_none_on_the_machine(tmp_path: Path) -> None:
    tools, work, temporary = (tmp_path / name for name in ("bin", "work", "a temp"))
    for directory in (tools, work, temporary):
        directory.mkdir()
    link_every_tool_but_java(tools)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SPARK")}
    environ.pop("JAVA_HOME", None)
    environ |= {
        "PATH": str(tools),
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    ran = run_python(["-c", WHOLE_LIFE], cwd=work, env=environ)
    assert ran.returncode == 0, ran.stderr
    assert "rows 2\n" in ran.stdout
    assert "left []\n" in ran.stdout
    assert list(work.iterdir()) == []
    assert list(temporary.glob("onceq-spark-*/session-*")) == []


def test_a_cluster_session_keeps_the_user_s_interpreter_and_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    settings = session_settings("spark://host:7077", tmp_path)
    assert "spark.driver.bindAddress" not in settings
    assert "spark.executorEnv.PYTHONPATH" not in settings
    launch = session._launch_environment("spark://host:7077", Path("/java"), tmp_path)
    assert launch == {"JAVA_HOME": "/java", "PYSPARK_PYTHON": "/opt/python"}


def test_a_home_of_spark_that_is_given_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    launch = session._launch_environment("local[2]", Path("/java"), tmp_path)
    assert launch["SPARK_HOME"] == "/opt/spark"


def test_settings_win_and_java_options_are_added(tmp_path: Path) -> None:
    given = {"spark.ui.enabled": "true", session.JAVA_OPTIONS: "-Xss4m"}
    settings = session_settings("local[2]", tmp_path, given)
    assert settings["spark.ui.enabled"] == "true"
    assert settings[session.JAVA_OPTIONS].endswith(" -Xss4m")
    assert f'"-Djava.io.tmpdir={tmp_path}"' in settings[session.JAVA_OPTIONS]


def test_a_session_of_spark_connect_is_refused() -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(errors.InvalidValue, match="runs in this process"):
        activate(remote)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("localhost:7077", False),
        ("yarn", False),
    ],
)
def test_which_masters_are_local(master: str, *, local: bool) -> None:
    assert session._is_local(master) is local


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(errors.MissingExtra, match=r"onceq\[spark\]"):
        session.build_session()


def test_java_that_ends_at_once_is_an_environment_fault(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from onceq import errors\n"
        "from onceq.spark import session\n"
        "from onceq.spark.start import java\n"
        "bad = java.Java(home=pathlib.Path(sys.argv[1]), major=17, origin='PATH', wrapped=False)\n"
        "session.find_java = lambda environ: bad\n"
        "try:\n    session.build_session()\n"
        "except errors.EnvironmentFault as error:\n    print(error)\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": tempfile.gettempdir()},
    )
    assert f"Spark did not come up with Java 17 at {tmp_path}" in ran.stdout, ran.stderr
