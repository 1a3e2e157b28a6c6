"""The plugin in runs of its own: what a user writes, and what a user gets wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGIN = ("-p", "onceq.testing.plugin", "-p", "no:cacheprovider")

USER = """
import datetime

import onceq
import pytest

PINGS = onceq.Queue("pings", str, str, backoff_ms=60_000)

@pytest.fixture
def table(onceq_qm, onceq_url):
    onceq_qm.declare(PINGS)

def pong(request, context):
    if request == "fail":
        raise ValueError(request)
    return f"{request} pong"

@pytest.mark.parametrize("number", range(3))
def test_drain(onceq_qm, onceq_drain, table, number):
    onceq_qm.enqueue(PINGS, f"ping {number}")
    (ran,) = onceq_drain(PINGS.handled_by(pong))
    assert (ran.request, ran.outcome) == (f"ping {number}", "done")
    assert ran.reply == f"ping {number} pong"
    assert onceq_drain(PINGS.handled_by(pong)) == []

def test_clock(onceq_qm, onceq_drain, onceq_clock, table):
    later = onceq_clock.now() + datetime.timedelta(days=365)
    onceq_qm.enqueue(PINGS, "ping", not_before=later)
    onceq_qm.enqueue(PINGS, "fail")
    (ran,) = onceq_drain(PINGS.handled_by(pong))
    assert (ran.request, type(ran.error), ran.outcome) == ("fail", ValueError, None)
    onceq_clock.advance(60)
    assert [one.attempt for one in onceq_drain(PINGS.handled_by(pong))] == [2]
    onceq_clock.advance(datetime.timedelta(days=365))
    assert {one.request for one in onceq_drain(PINGS.handled_by(pong))} == {"ping", "fail"}

def test_crash(onceq_qm, onceq_url, onceq_repository, onceq_crash_at, onceq_drain, table):
    def client():
        with onceq.open(onceq_url, repository=onceq_repository) as qm:
            with qm.clerk("c", PINGS) as clerk:
                clerk.send("1", "ping")
    onceq_crash_at("Send.after", client)
    with onceq_qm.clerk("c", PINGS) as clerk:
        assert isinstance(clerk.recover(), onceq.Submitted)
        onceq_drain(PINGS.handled_by(pong))
        assert clerk.receive(timeout_s=60).value == "ping pong"

def test_device(onceq_device):
    assert onceq_device.state() == b"0"
    onceq_device.output("a line")
    assert onceq_device.lines() == ["a line"]
"""

TWO = """
def test_one(onceq_qm):
    pass

def test_two(onceq_qm):
    pass
"""

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def run(
    pytester: pytest.Pytester, text: str, url: str, options: Sequence[str] = ()
) -> pytest.RunResult:
    """Runs a file of tests in a process of its own. url: what the environment says, or ""."""
    pytester.makepyfile(text)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONCEQ_TEST_URL", url)
        return pytester.runpytest_subprocess(*PLUGIN, *options)


def test_what_a_user_writes(pytester: pytest.Pytester, conninfo: str) -> None:
    run(pytester, USER, conninfo).assert_outcomes(passed=6)


def test_a_run_without_a_database_has_one_of_its_own(pytester: pytest.Pytester) -> None:
    text = "def test_it(onceq_qm, onceq_url):\n    print('URL', onceq_url)\n"
    result = run(pytester, text, "", ["-s"])
    result.assert_outcomes(passed=1)
    found = re.search(r"URL .*", result.stdout.str())
    assert found is not None
    other = run(pytester, text.replace("test_it", "test_again"), "", ["-s"])
    assert found.group() not in other.stdout.str()


def test_runs_at_once_share_a_database(pytester: pytest.Pytester, conninfo: str) -> None:
    """As the processes of pytest-xdist do, each of which is a run."""
    pytester.makepyfile(USER)
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-k", "drain or clock"]
    running = [
        subprocess.Popen(
            command,
            cwd=pytester.path,
            env={**os.environ, "ONCEQ_TEST_URL": conninfo},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    said = [one.communicate(timeout=250)[0] for one in running]
    assert [one.returncode for one in running] == [0, 0], said


def test_two_databases_are_refused(pytester: pytest.Pytester, conninfo: str) -> None:
    result = run(pytester, TWO, conninfo, ["--onceq-url", NOWHERE])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: two databases are named*--onceq-url*ONCEQ_TEST_URL*"])
    run(pytester, TWO, conninfo, ["--onceq-url", conninfo]).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (NOWHERE, "CannotConnect: cannot connect to PostgreSQL"),
        ("sqlite:///x.db", "InvalidValue: not a database URL"),
        ("embedded:", "InvalidValue: embedded: needs a path"),
    ],
)
def test_a_setup_that_fails_says_so_once(pytester: pytest.Pytester, url: str, text: str) -> None:
    result = run(pytester, TWO, url)
    said = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said.count("no PostgreSQL for the tests") == 1, said
    assert text in said
    assert "Traceback" not in said


def test_a_run_that_asks_for_nothing_starts_nothing(pytester: pytest.Pytester) -> None:
    run(pytester, "def test_it():\n    pass\n", NOWHERE).assert_outcomes(passed=1)


def test_a_crash_point_that_is_unknown_is_told_with_all_there_are(
    pytester: pytest.Pytester,
) -> None:
    text = "def test_it(onceq_crash_at):\n    onceq_crash_at('Sent.after', print)\n"
    result = run(pytester, text, NOWHERE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*no crash point 'Sent.after'; is *Send.after*", "*Commit.before*"]
    )
