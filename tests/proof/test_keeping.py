"""Each part is recorded by itself, with the digest of its sources, and told from what is older."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from proof import judging, keeping, machine, page, record, sources
from proof.__main__ import chosen, parsed, show_status
from proof.part import PART_S_MAX, Outcome, Size
from proof.parts import PARTS
from proof.running import Result
from proof.schedule import ABREAST
from tests.proof.tiny_parts import PARTS as TINY

if TYPE_CHECKING:
    from proof.part import Part

ALL_S_MAX = 150 * 60.0
ABOUT = record.Run(seed=1, date="", machine={"onceq": "0.0.1 (abc)"})


class Nobody:
    """Is told, and does nothing."""

    def began(self, part: object) -> None: ...
    def went_on(self, running: object) -> None: ...
    def ended(self, result: object) -> None: ...


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one source, and places for record and page."""
    (tmp_path / "product.py").write_text("one")
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(page, "DOCS", tmp_path)
    monkeypatch.setattr(page, "README", tmp_path / "README.md")
    monkeypatch.setattr(machine, "why_not_recorded", lambda: None)
    return tmp_path


def covering(number: int) -> Part:
    return replace(TINY[number], covers=("product.py",))


def ended(part: Part, digest: str | None = None) -> Result:
    made = sources.digest(part.covers) if digest is None else digest
    return Result(part=part, seconds=1.0, outcome=Outcome(), digest=made)


def test_each_part_is_recorded_when_it_has_ended(root: Path) -> None:
    parts = [covering(0), covering(1)]
    kept = keeping.Keeping(Nobody(), parts, Size.PROOF, ABOUT)
    kept.ended(ended(parts[0]))
    states = [standing for _, standing, _ in keeping.status(parts, Size.PROOF)]
    assert states == [keeping.CURRENT, keeping.NEVER]
    kept.ended(ended(parts[1]))
    held = record.read(root / "recorded.json")
    assert held is not None
    assert [one.name for one in held.shown] == [part.name for part in parts]
    assert (root / "proof.md").read_text() == page.text(held)


def test_a_record_is_older_when_a_source_that_the_part_covers_has_changed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [covering(0), covering(1)]
    keeping.write(keeping.shown_of(ended(parts[0]), ABOUT), parts, Size.PROOF)
    (root / "product.py").write_text("two")
    assert keeping.standing(parts[0], record.read(root / "recorded.json")) == keeping.OLDER
    assert show_status(parts, Size.PROOF) == 1
    assert "good                  older than its sources" in capsys.readouterr().out
    keeping.write(keeping.shown_of(ended(parts[1]), ABOUT), parts, Size.PROOF)
    assert (root / "proof.md").read_text().count(", **changed since**.") == 1
    keeping.write(keeping.shown_of(ended(parts[0]), ABOUT), parts, Size.PROOF)
    assert show_status(parts, Size.PROOF) == 0


def test_the_readme_shows_the_scoreboard_that_was_recorded_last(root: Path) -> None:
    tables = [f"| system, setting | kills |\n| --- | --- |\n| onceq | {n} |" for n in (1, 2)]
    readme = root / "README.md"
    readme.write_text(f"Before.\n\n{tables[0]}\n\nAfter.\n")
    part = covering(0)
    kept = keeping.Keeping(Nobody(), [part], Size.PROOF, ABOUT)
    kept.ended(replace(ended(part), outcome=Outcome(page=f"{tables[1]}\n")))
    assert readme.read_text() == f"Before.\n\n{tables[1]}\n\nAfter.\n"
    assert tables[1] in (root / "proof.md").read_text()


def test_what_is_current_is_left_out_of_what_is_older(root: Path) -> None:
    parts = [covering(0), covering(1)]
    keeping.write(keeping.shown_of(ended(parts[0]), ABOUT), parts, Size.PROOF)
    assert chosen(parsed(["--older"]), parts) == [parts[1]]
    assert chosen(parsed(["--without", parts[1].name]), parts) == [parts[0]]
    assert root.exists()


@pytest.mark.parametrize(
    ("digest", "reason", "said"),
    [("", None, "have changed while it ran"), (None, "the tree is changed", "the tree is changed")],
)
def test_what_may_not_be_recorded_is_a_failure(
    digest: str | None, reason: str | None, said: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "why_not_recorded", lambda: reason)
    kept = keeping.Keeping(Nobody(), [covering(0)], Size.PROOF, ABOUT)
    kept.ended(ended(covering(0), digest))
    (refused,) = kept.refused
    assert said in refused
    assert not (root / "recorded.json").exists()


COMMENTED = '''"""A module."""

x = 1  # one
class A:
    """A class.

    With two lines.
    """
    y = "# no comment"
    """What y is."""
'''
BARE = '''x = 1
class A:
    y = "# no comment"'''


def test_better_words_make_no_record_older() -> None:
    assert sources.code(".py", COMMENTED) == BARE
    assert sources.code(".sql", "-- one\nselect 1;\n    -- two\n\nselect '-- 3';\n") == (
        "select 1;\nselect '-- 3';"
    )
    assert sources.code(".toml", "# kept\n") == "# kept"
    assert sources.code(".py", COMMENTED.replace("# no", "#")) != BARE


def test_a_pattern_that_names_no_source_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nothing\.py names no source"):
        sources.digest(("nothing.py",))


def test_a_pattern_may_leave_sources_out() -> None:
    all_of = sources.files(["proof/audit/*"])
    left = sources.files(["proof/audit/*", "!proof/audit/part.py"])
    assert [path.name for path in all_of if path not in left] == ["part.py"]
    with pytest.raises(ValueError, match="names no source"):
        sources.files(["proof/audit/*", "!proof/audit/missing.py"])


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_covers_itself_and_ends_within_25_minutes(part: Part) -> None:
    run = part.run.func if isinstance(part.run, partial) else part.run
    module = sys.modules[run.__module__].__file__
    assert module is not None
    assert Path(module) in sources.files(part.covers)
    assert part.limits.of(Size.PROOF) <= PART_S_MAX


def test_the_parts_that_are_recorded_take_150_minutes_together_at_most() -> None:
    held = record.read(record.path_of(Size.PROOF))
    assert held is not None
    alone = {part.name for part in PARTS if part.alone}
    seconds = [one.seconds * (ABREAST if one.name in alone else 1) for one in held.shown]
    assert sum(seconds) / ABREAST <= ALL_S_MAX


def test_the_last_line_counts_what_was_reached_what_was_missed_and_what_was_not_tried() -> None:
    def row(what: str, verdict: str) -> record.Row:
        return record.Row(what=what, goal=1, reached=1, seconds=1.0, verdict=verdict)

    verdicts = ("met", "met", "MISSED", "stated", "not run", "not tried here")
    found = [row(f"{at}", verdict) for at, verdict in enumerate(verdicts)]
    assert judging.tally(found) == "2 goals reached, 1 missed, 2 not tried: 4, 5"
