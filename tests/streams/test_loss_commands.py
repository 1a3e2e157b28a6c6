"""Losses and lists of no-cache stores as commands tell them: real stores, and the real command."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest

from onceq.cli.listing import kept, newest
from onceq.cli.output import Output
from onceq.cli.receiving import WORDS, show_one
from onceq.cli.sending import lines_before
from onceq.streams.model import asks
from onceq.streams.model.choice import Stage
from onceq.streams.model.events import Loss, RolledBack, WhyLost
from onceq.streams.model.losses import Lost
from tests.cli.parts import Answer, run_here
from tests.examples.test_guides import free_ports
from tests.parts import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceq.streams.model.choice import Firsts
    from onceq.streams.model.losses import Losses

ONCEQ = (sys.executable, "-m", "onceq.cli.main", "--json")
NAMED = ("people", "--source", "0x7e1")
WITHIN_S = 60.0
PEOPLE = ["ann", "bob", "carl", "dan", "eve", "fay"]


class Places:
    """Stores in processes, by their names; each keeps its address and its directory."""

    def __init__(self, home: Path, kind: str) -> None:
        self.home = home
        self._kind = kind
        self._running: dict[str, subprocess.Popen[str]] = {}
        ports = free_ports(3)
        self._addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip("abc", ports, strict=True)
        }

    def at(self, names: str = "abc") -> str:
        return " ".join(self._addresses[name] for name in names)

    def start(self, names: str) -> None:
        for name in names:
            home = self.home / name
            words = [str(home), "--listen", self.at(name), "--log", str(self.home / f"{name}.log")]
            new = [] if home.exists() else ["--init", "--kind", self._kind]
            command = [*ONCEQ, "store", "run", *words, *new]
            self._running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for name in names:
            out = self._running[name].stdout
            assert out is not None
            assert '"ready"' in out.readline()

    def kill(self, names: str, number: signal.Signals = signal.SIGKILL) -> None:
        for name in names:
            with self._running.pop(name) as process:
                process.send_signal(number)

    def wipe(self, names: str) -> None:
        self.kill(names)
        for name in names:
            shutil.rmtree(self.home / name)

    def __enter__(self) -> Self:
        self.start("abc")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill("".join(self._running))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "people"


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Places]:
    with Places(tmp_path, "disk") as made:
        yield made


def sent(at: str, file: Path, lines: list[str], *words: str, code: int = 0) -> Answer:
    file.write_text("".join(f"{line}\n" for line in lines))
    named = ("people", str(file), "--source", "0x7e1", "--stores", at)
    answer = run_here("--json", "stream", "send", *named, *words)
    assert answer.code == code, answer
    return answer


def known(stores: Places, names: str, below: int) -> bool:
    """Whether stores know that all below a number is stable."""
    rows = run_here("--json", "stream", "stores", *NAMED, "--stores", stores.at(names)).lines
    return [row["stable"] for row in rows] == [below] * len(names)


class Receiving:
    """`onceq stream receive` in a process of its own. count: of messages, until it ends."""

    def __init__(self, at: str, count: int) -> None:
        words = ("--session", "1", "--stores", at, "--count", str(count))
        self._process = subprocess.Popen(
            [*ONCEQ, "stream", "receive", *NAMED, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def next(self, count: int) -> list[dict[str, Any]]:
        """What comes next, but for which stores it waits until it is registered."""
        out = self._process.stdout
        assert out is not None
        read = (msgspec.json.decode(line, type=dict[str, Any]) for line in iter(out.readline, ""))
        come = (one for one in read if one.get("event") != "registration_error")
        return list(itertools.islice(come, count))

    def end(self) -> str:
        _, complaints = self._process.communicate(timeout=WITHIN_S)
        assert self._process.returncode == 0, complaints
        return complaints

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def receiving(stores: Places) -> Iterator[Receiving]:
    made = Receiving(stores.at(), 9)
    yield made
    made.stop()


@pytest.mark.timeout(300)
def test_two_of_three_stores_are_wiped_and_the_commands_go_on_without(
    stores: Places, file: Path, receiving: Receiving
) -> None:
    at = stores.at()
    sent(at, file, PEOPLE[:3])
    wait_until(lambda: known(stores, "abc", 3), WITHIN_S)
    (row,) = run_here("--json", "stream", "list", "--stores", at).lines
    assert (row["keeps"], row["losses"]) == (True, [])
    for words in (("list",), ("show", *NAMED), ("stores", *NAMED)):
        plain = run_here("stream", *words, "--stores", at).out
        assert ("loss" in plain, "keeps" in plain) == (False, False)

    stores.kill("a", signal.SIGTERM)
    sent(at, file, PEOPLE)
    assert [one["text"] for one in receiving.next(6)] == PEOPLE
    stores.wipe("bc")
    stores.start("abc")

    text = told_by_send(stores, file)
    other = text.replace("3-", "2-")
    refused = sent(at, file, PEOPLE, "--timeout", "8", "--accept-loss", other, code=1)
    assert "of another state" in refused.err

    accepted = sent(at, file, PEOPLE, "--accept-loss", text).lines
    assert accepted == [
        {"v": 1, "event": "loss_accepted", "first": 3, "last": 1_000_002},
        {"v": 1, "sent": 3, "first": 1_000_003, "next_number": 1_000_006},
    ]
    assert receiving.next(1) == [{"v": 1, "event": "rolled_back", "first": 3, "last": 5}]
    void = 3
    while void <= 1_000_002:
        (one,) = receiving.next(1)
        assert (one["event"], one["first"], one["why"]) == ("loss", void, "lost")
        void = one["last"] + 1
    again = [(one["number"], one["text"]) for one in receiving.next(3)]
    assert again == [(1_000_003, "dan"), (1_000_004, "eve"), (1_000_005, "fay")]
    complaints = receiving.end()
    assert "what was shown of numbers 3 to 5 is void" in complaints
    assert "numbers 3 to 65537 are lost" in complaints

    is_shown_everywhere(stores, at)
    more = sent(at, file, [*PEOPLE, "guy"], "--accept-loss", text).lines[-1]
    assert (more["sent"], more["first"]) == (1, 1_000_006)


def told_by_send(stores: Places, file: Path) -> str:
    """What is to be accepted, as it is told: at once, and by the error when the time is over."""
    refused = sent(stores.at(), file, PEOPLE, "--timeout", "10", code=1)
    told = refused.lines[-1]
    assert (told["event"], told["end"]) == ("stores_forgot", 3)
    assert sorted([*told["forgot"], *told["silent"]]) == sorted(stores.at("bc").split())
    text: str = told["accept_loss"]
    assert text.startswith("3-1000003@")
    *_, error = refused.err.splitlines()
    said = msgspec.json.decode(error, type=dict[str, Any])
    assert (said["error"], said["exit_code"]) == ("DeadlineExceeded", 1)
    assert f"accept_loss={text!r}" in said["text"]
    assert f"--accept-loss '{text}'" in refused.err
    return text


def is_shown_everywhere(stores: Places, at: str) -> None:
    """Losses, by each command that looks at streams."""
    show, *receivers = run_here("--json", "stream", "show", *NAMED, "--stores", at).lines
    (loss,) = show["losses"]
    assert {**loss, "epoch": 0} == {"epoch": 0, "first": 3, "count": 1_000_000, "below": 1_000_003}
    assert (show["topic"], show["session"], show["keeps"]) == ("people", "0x7e1", True)
    assert [one["receiver"] for one in receivers] == ["session 1"]
    (row,) = run_here("--json", "stream", "list", "--stores", at).lines
    assert (row["losses"], row["keeps"]) == ([loss], True)
    rows = run_here("--json", "stream", "stores", *NAMED, "--stores", at).lines
    assert [loss] in [row["losses"] for row in rows]
    for where in (stores.at("a"), str(stores.home / "a")):
        (row,) = run_here("--json", "store", "show", where).lines
        assert (row["losses"], row["keeps"]) == ([loss], True)
        assert "messages go on at 1000003" in run_here("store", "show", where).out
    words = (
        f"a loss was accepted in epoch {loss['epoch']}: all below 3 was left, 1000000 numbers are"
        " void, messages go on at 1000003"
    )
    for command in (("list",), ("show", *NAMED), ("stores", *NAMED)):
        assert words in run_here("stream", *command, "--stores", at).out


@pytest.mark.timeout(300)
def test_stores_that_keep_no_messages_are_shown(tmp_path: Path, file: Path) -> None:
    with Places(tmp_path, "no-cache") as stores:
        at = stores.at()
        sent(at, file, PEOPLE)
        (row,) = run_here("--json", "stream", "list", "--stores", at).lines
        assert (row["keeps"], row["losses"]) == (False, [])
        (row,) = run_here("--json", "store", "show", str(tmp_path / "a")).lines
        assert row["keeps"] is False
        for command in (("list",), ("show", *NAMED)):
            out = run_here("stream", *command, "--stores", at).out
            assert "people of session 0x7e1: its stores keep no messages" in out
        out = run_here("stream", "stores", *NAMED, "--stores", at).out
        assert f"{stores.at('a')}: its stores keep no messages" in out


@pytest.mark.timeout(300)
def test_what_is_lost_while_it_sends_is_told(stores: Places) -> None:
    """A life that has sent says for whom it waits, and ends when it can send no more."""
    words = ("people", "-", "--source", "0x7e1", "--stores", stores.at())
    with subprocess.Popen(
        [*ONCEQ, "stream", "send", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("ann\n")
        process.stdin.flush()
        wait_until(lambda: known(stores, "abc", 1), WITHIN_S)
        stores.wipe("bc")
        stores.start("bc")
        holds_nothing = set(stores.at("bc").split())
        while holds_nothing:
            line = process.stderr.readline()
            assert line, "it says for whom it waits"
            holds_nothing -= {one for one in holds_nothing if f"{one} holds nothing" in line}
        _, complaints = process.communicate("bob\n", timeout=WITHIN_S)
        assert process.returncode == 4
        assert "no stable set of stores is responsive" in complaints


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("127.0.0.1:1", "give what StoresForgot told"),
        ("9-3@1 127.0.0.1:1", "messages go on at 3"),
        ("3-9@1 nowhere", "is no address"),
        ("3-9@1 192.0.2.1:7401", "without TLS"),
    ],
)
def test_what_is_no_acceptance_is_refused(file: Path, text: str, says: str) -> None:
    answer = sent("127.0.0.1:1", file, PEOPLE, "--accept-loss", text, code=2)
    assert says in answer.err


def test_of_what_stores_tell_the_last_epoch_counts() -> None:
    """One that was away does not know what was accepted meanwhile."""
    lost = Lost(epoch=7, first=3, count=2)
    old = information(firsts=((4, 0),))
    new = information(firsts=((4, 0), (7, 5)), losses=(lost,))
    for told in ([old, new, None], [new, old]):
        losses = [{"epoch": 7, "first": 3, "count": 2, "below": 5}]
        assert kept(newest(told)) == {"keeps": True, "losses": losses}
    assert kept(newest([None])) == {"keeps": None, "losses": []}


def information(firsts: Firsts, losses: Losses = ()) -> asks.Information:
    return asks.Information(
        stream=1,
        epoch=0,
        stage=Stage.SETTLED,
        firsts=firsts,
        lists=(),
        address="",
        stable=0,
        losses=losses,
    )


@pytest.mark.parametrize(
    ("number", "losses", "lines"),
    [
        (7, [], 7),
        (9, [(5, 4)], 5),
        (30, [(5, 4), (12, 8)], 18),
        (30, [(5, 4), (3, 20)], 10),
        (30, [(3, 20), (5, 4)], 10),
        (9, [(9, 0)], 9),
    ],
)
def test_numbers_that_are_void_are_no_lines(
    number: int, losses: list[tuple[int, int]], lines: int
) -> None:
    known = tuple(
        Lost(epoch=n, first=first, count=count) for n, (first, count) in enumerate(losses)
    )
    assert lines_before(number, known) == lines


def test_each_reason_has_words_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert WORDS.keys() == set(WhyLost)
    for why in WhyLost:
        show_one(Output(as_json=False), Loss(stream=1, first=4, last=7, why=why))
        show_one(Output(as_json=True), Loss(stream=1, first=4, last=7, why=why))
        out, complaints = capsys.readouterr()
        assert complaints == f"onceq: numbers 4 to 7 are {WORDS[why]}\n" * 2
        assert f'"event":"loss","first":4,"last":7,"why":"{why.value}"' in out
        assert "received" not in complaints
    show_one(Output(as_json=False), RolledBack(stream=1, first=4, last=7))
    assert "was shown of numbers 4 to 7 is void" in capsys.readouterr().err
