"""What `make` says: its targets, a set-up in a few lines, and what `make check` is doing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.source_tree import ROOT

LINES_MAX = 20
STEPS = ("the venv", "build tools", "requirements", "onceq itself", "data of the examples")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with a log of the test's own."""
    spec = importlib.util.spec_from_file_location("project_under_test", ROOT / "project.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOG", tmp_path / "setup.log")
    return module


def test_make_alone_lists_every_target(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (line,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    first = re.findall(r"^([a-z]+)[ a-z]*:", makefile, re.MULTILINE)[0]
    assert first == "help"
    project.target_help()
    listed = [text.split()[0] for text in capsys.readouterr().out.splitlines()[1:]]
    assert sorted(listed) == sorted(line.split())


ALONE = "--last-failed"


@pytest.mark.parametrize(
    ("codes", "failed", "ends", "alone"),
    [
        ([0], 0, 0, False),
        ([1, 0], 1, 0, True),
        ([1, 0], 3, 0, True),
        ([1, 1], 3, 1, True),
        ([1], 4, 1, False),
        ([1], 0, 1, False),
        ([2], 1, 2, False),
    ],
)
def test_a_few_tests_that_fail_beside_others_run_once_more_alone_and_are_named(
    project: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    codes: list[int],
    failed: int,
    ends: int,
    *,
    alone: bool,
) -> None:
    runs: list[tuple[str, ...]] = []

    def run_tests(*options: str) -> int:
        runs.append(options)
        return codes[len(runs) - 1]

    names = [f"tests/test_{number}.py::test_it" for number in range(failed)]
    monkeypatch.setattr(project, "FAILED", tmp_path / "lastfailed")
    (tmp_path / "lastfailed").write_text(json.dumps(dict.fromkeys(names, True)))
    for name in ("set_up", "keep_java_classes"):
        monkeypatch.setattr(project, name, lambda: None)
    monkeypatch.setattr(project, "run_tests", run_tests)
    assert project.target_test() == ends
    assert [ALONE in options for options in runs] == [False, True][: 1 + alone]
    said = capsys.readouterr().err
    assert [name for name in names if f"UNSTEADY: {name}" in said] == (names if ends == 0 else [])


def test_a_set_up_of_an_hour_says_how_far_it_is_in_at_most_20_lines(
    project: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(project.time, "monotonic", lambda: now)
    for name in STEPS:
        seconds = 3_400 if name == "requirements" else 4
        progress = project.Progress(name, of=150 if name == "requirements" else 0)
        for number in range(seconds):
            now += 1.0
            progress.heard(f"Collecting package-{number}==1.0 (from -r requirements.txt (line 1))")
            progress.show()
        progress.end()
    said = capsys.readouterr().err.splitlines()
    assert len(said) + 2 <= LINES_MAX  # and how much is fetched, and that it is complete
    told = [line for line in said if " of 150: " in line]
    assert len(told) >= 5
    assert "setup: requirements: 5 of 150: Collecting package-4==1.0 (5 s)" in said


def test_what_pip_says_goes_to_the_log_and_its_end_is_told_of_a_failure(
    project: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    talks = "for n in range(2000): print('line', n)"
    project.call("a step", sys.executable, "-c", talks)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert len(project.LOG.read_text().splitlines()) == 2000
    with pytest.raises(project.Refusal) as refused:
        project.call("a step", sys.executable, "-c", f"{talks}\nraise SystemExit(3)")
    told = str(refused.value).splitlines()
    assert told[0] == "a step: exit code 3"
    assert told[-2:] == ["line 1999", f"All that was said: {project.LOG}"]
    assert len(told) == 22


def test_wheels_may_spell_their_names_with_capitals(
    project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `Lifetimes-0.11.3-py3-none-any.whl` does, which pip fetches for `lifetimes`."""

    def download(_what: str, _verb: str, *arguments: str) -> None:
        for member in project.DATA_MEMBERS:
            name = member.partition("/")[0].capitalize()
            with zipfile.ZipFile(Path(arguments[-1]) / f"{name}-1.0-py3.whl", "w") as archive:
                archive.writestr(member, f"what {member} has")

    monkeypatch.setattr(project, "DATA", tmp_path / "data")
    monkeypatch.setattr(project, "pip", download)
    project.fetch_data()
    for member in project.DATA_MEMBERS:
        assert (tmp_path / "data" / Path(member).name).read_text() == f"what {member} has"


def test_check_says_what_it_does_before_it_is_done(tmp_path: Path) -> None:
    """The step waits until it is told to end, which is once that was read which is said of it."""
    os.mkfifo(tmp_path / "go")
    waits = f"open({str(tmp_path / 'go')!r}).read()"
    program = (
        "import importlib.util, sys;"
        f"spec = importlib.util.spec_from_file_location('p', {str(ROOT / 'project.py')!r});"
        "p = importlib.util.module_from_spec(spec); spec.loader.exec_module(p);"
        f"p.run_steps([p.Step('slow one', sys.executable, '-c', {waits!r})], abreast=1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "check: slow one ...\n"
        assert process.poll() is None
        (tmp_path / "go").write_text("")
        said, _ = process.communicate(timeout=150)
    assert said.startswith("ok")
