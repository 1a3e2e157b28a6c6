"""The files of histories of streams, the ranges that they are kept in, and the command."""

from __future__ import annotations

import itertools
import mmap
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceq.streams.history import RULES, kinds
from onceq.streams.history.__main__ import main
from onceq.streams.history.files import Journal, read, tail, under_way
from onceq.streams.history.spans import Spans
from tests.parts import wait_until
from tests.streams.test_streams_history import GOOD, ONE, PLANTED, SOURCE, planted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# ranges


class Plainly:
    """The same as Spans, number by number."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}

    def put(self, first: int, last: int, value: int) -> None:
        self.values.update(dict.fromkeys(range(first, last + 1), value))

    def cut(self, first: int) -> None:
        self.values = {number: its for number, its in self.values.items() if number < first}

    def remove(self, first: int, last: int) -> None:
        self.values = {
            number: its for number, its in self.values.items() if not first <= number <= last
        }


STEPS = st.tuples(
    st.sampled_from(("put", "put", "put", "cut", "remove")),
    st.integers(0, 20),
    st.integers(0, 6),
    st.integers(1, 3),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_ranges_are_numbers_with_values(steps: list[tuple[str, int, int, int]]) -> None:
    spans, plain = Spans[int](), Plainly()
    for what, first, more, value in steps:
        for one in (spans, plain):
            match what:
                case "put":
                    one.put(first, first + more, value)
                case "cut":
                    one.cut(first)
                case _:
                    one.remove(first, first + more)
    ranges = list(spans)
    assert {n: its for low, high, its in ranges for n in range(low, high + 1)} == plain.values
    for (_, end, its), (begin, _, other) in itertools.pairwise(ranges):
        assert end < begin - 1 or (end == begin - 1 and its != other)
    within = {n: its for low, high, its in spans.over(4, 12) for n in range(low, high + 1)}
    assert within == {n: its for n, its in plain.values.items() if 4 <= n <= 12}
    lacking = {n for low, high in spans.gaps(4, 12) for n in range(low, high + 1)}
    assert lacking == set(range(4, 13)) - plain.values.keys()
    assert spans.end == max(plain.values, default=-1) + 1
    assert spans.count == len(plain.values)


# files


def row(first: int, last: int, key: tuple[Any, ...]) -> kinds.Sent:
    return kinds.Sent(**ONE, first=first, last=last, content=key[0])


def test_what_is_under_way_is_there_though_nobody_noted_its_end(tmp_path: Path) -> None:
    path = tmp_path / "source-1.events"
    journal = Journal(path, "source")
    for number in range(3):
        journal.go_on(number, number, ("x",), row)
    journal.record(SOURCE[2], ends_row=False)
    journal.go_on(3, 3, ("x",), row)
    journal.go_on(4, 4, ("y",), row)
    kept = [*read(path)]
    assert [type(one) for one in kept] == [kinds.StableTold, kinds.Sent, kinds.Sent]
    assert [(one.first, one.last) for one in kept if isinstance(one, kinds.Sent)] == [
        (0, 3),
        (4, 4),
    ]
    assert {one.actor for one in kept} == {"source"}
    assert tail(path) == kept
    journal.close()
    assert [*read(path)] == kept


GOES_ON: Final = """
import sys
from pathlib import Path
from onceq.streams.history import kinds
from onceq.streams.history.files import Journal

def made(first, last, key):
    return kinds.Sent(stream=7, life=1, first=first, last=last, content="c")

journal = Journal(Path(sys.argv[1]))
for number in range(1 << 62):
    journal.go_on(number, number, (), made)
"""


def test_at_no_moment_the_row_under_way_has_no_end(tmp_path: Path) -> None:
    """A kill -9 may come at any: then the end before counts, or the one after, and never none."""
    path = tmp_path / "one.events"
    beside = path.with_suffix(".run")
    with subprocess.Popen([sys.executable, "-c", GOES_ON, str(path)]) as process:
        try:
            wait_until(lambda: beside.exists() and bool(under_way(path)))
            with (
                beside.open("rb") as file,
                mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as there,
                memoryview(there) as bytes_,
                bytes_[:8] as end,
                end.cast("Q") as ends,
            ):
                seen = [ends[0] for _ in range(2_000_000)]
        finally:
            process.kill()
    assert seen[-1] > seen[0], "it went on meanwhile"
    assert all(one <= other for one, other in itertools.pairwise(seen))
    row = under_way(path)
    assert row is not None
    assert row.last + 1 >= seen[-1]


def test_a_row_that_is_in_both_files_counts_once(tmp_path: Path) -> None:
    """A life ended between the two."""
    path = tmp_path / "source-1.events"
    with Journal(path) as journal:
        journal.go_on(0, 0, ("x",), row)
        beside = path.with_suffix(".run")
        was = beside.read_bytes()
    beside.write_bytes(was)
    assert len([*read(path)]) == 1


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "source-1.events"
    with Journal(path) as journal:
        journal.record(SOURCE[0])
        journal.record(SOURCE[1])
    path.write_bytes(path.read_bytes()[:-3])
    assert [type(one) for one in read(path)] == [kinds.Began]
    assert [type(one) for one in tail(path)] == [kinds.Began]


def test_a_life_does_not_write_over_another(tmp_path: Path) -> None:
    path = tmp_path / "source-1.events"
    Journal(path).close()
    with pytest.raises(FileExistsError):
        Journal(path)
    assert tail(tmp_path / "source-2.events") == []


def test_a_content_that_is_no_digest_is_refused(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "source-1.events") as journal,
        pytest.raises(ValueError, match="digest"),
    ):
        journal.go_on(0, 0, ("x" * 5_000,), row)


def stored(events: Sequence[kinds.StreamEvent], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    with Journal(folder / "all.events") as journal:
        for event in events:
            journal.record(event)
    return folder


def test_the_command_says_what_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = stored(GOOD, tmp_path / "good")
    assert main([str(good)]) == 0
    assert "0 violations" in capsys.readouterr().out
    bad = stored(planted(PLANTED["a gap"][1]), tmp_path / "bad")
    assert main([str(bad / "all.events")]) == 1
    said = capsys.readouterr().out
    assert "receiver sure, life 2: 9 came, not 8" in said
    assert RULES["no-gap"].text in said
    assert main([str(bad), "--json"]) == 1
    report = msgspec.json.decode(capsys.readouterr().out)
    assert {one["rule"] for one in report["violations"]} == {"no-gap", "all-delivered"}


def test_the_command_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no events" in capsys.readouterr().err
    assert main([str(tmp_path / "x.events")]) == 2
    (tmp_path / "x.events").write_bytes(b'{"event": "Unheard"}\n')
    assert main([str(tmp_path)]) == 2
    assert "x.events" in capsys.readouterr().err
