"""Every example runs as it stands, ends by itself, and prints what it is there to show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.programs import run_python

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

SHOWN: dict[str, str] = {
    "quickstart": """\
receipt 1 for order 4711
the same again: True
""",
    "client_of_figure_2": """\
exit code -9, killed: sent 2, tickets: 1
exit code -9, killed: received 3, tickets: 2
exit code -9, killed: printed 4, tickets: 4
exit code 0, killed: never, tickets: 5
ticket 1
ticket 2
ticket 3
ticket 4
ticket 5
""",
    "fire_and_forget": """\
waiting: 2
ann [('finished', 'done')]
bob []
cleo [('finished', 'done')]
""",
    "many_outstanding": """\
all accounted for: True
answers: 100 sum: 328350
""",
    "asynchronous": """\
hello client 0
10 different greetings
""",
    "reject_and_retry": """\
while it was down: 3 after 1 attempt(s)
negative: failed, Reject, after 1 attempt(s)
poison: failed, ZeroDivisionError, after 3 attempt(s)
rejected ones are held too: True
held in divisions.error with ZeroDivisionError
redriven under another eid: True outcome: done
""",
    "batch_server": """\
replies: 200, of them failed: 2
refused: row 50 of the file has no amount
refused: row 150 of the file has no amount
booked: 198 in fewer than 20 transactions: True
""",
    "kill": """\
queued: KILLED
queued: the reply says killed
running: KILLED and again: KILLED
running: the reply says killed
done: the reply is 'slept'
done: TOO_LATE
effects: [('done',)]
""",
    "later": """\
1 done
2 done
3 done
4 expired
in the order of: call the doctor, post a letter, fetch the cake
""",
    "registration": """\
inbox: 2 outbox: 0
the former life took b'"one"' and had not put it
moved: one, two, three
""",
    "own_dequeue": """\
after a commit the queue holds 0
after a rollback it comes again, with 1 abort
a kill meanwhile: KILLED
the commit then fails: True
the sender gets: signed for
delivered: book, vase, letter
""",
    "ticket_printer": """\
logged with the receive:
  killed where it reads: 1 seat 1, 2 seat 2, 3 seat 3
  killed where it prints: 1 seat 1, 2 seat 2, 3 seat 3
  killed where it printed: 1 seat 1, 2 seat 2, 3 seat 3
  killed where it sends: 1 seat 1, 2 seat 2, 3 seat 3
logged after the receive:
  killed where it reads: 1 seat 1, 2 seat 2, 3 seat 3
  killed where it prints: 1 seat 1, 2 seat 2, 3 seat 3
  killed where it printed: 1 seat 1, 2 seat 2, 3 seat 3
  killed where it sends: 1 seat 1, 2 seat 2, 3 seat 3
""",
    "own_receive": """\
noted: [('1', 12)]
request 2 was refused 5 times, and is held
noted: [('1', 12), ('3', 7)]
it is in reply-1.error and its request is done
""",
    "spark_handlers": """\
ann done ann is 44
bob failed bob is not born yet
cleo done b'4'
dan done b'7'
eve done b'HELLO'
fay done b'YOU'
seen: [('cleo', 4), ('dan', 7), ('eve', 5), ('fay', 3)]
""",
    "two_steps": """\
booked
bookings: [(1999,)]
calls: 2 charges: [1999]
""",
}


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_example(name: str, tmp_path: Path) -> None:
    ran = run_python(
        ["-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == SHOWN[name]
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_every_example_is_run_and_listed() -> None:
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(SHOWN) == names
    assert [name for name in names if f"[{name}.py]({name}.py)" not in listed] == []
