"""Write `docs/states.md`: the state tables of the model as diagrams and tables.

`python docs/diagrams.py`. A test compares the page with what would be written. The tables are
those that clerks, stores, sources and receivers decide by, so the page cannot say anything else;
but for `SOURCE`, which is a picture only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from onceq.model import client_state, recovery  # noqa: E402 - its path comes first
from onceq.model.ledger import Noted  # noqa: E402 - the same
from onceq.streams.model import fragments, states  # noqa: E402 - the same
from onceq.streams.source import confirming  # noqa: E402 - the same

if TYPE_CHECKING:
    import enum
    from collections.abc import Iterable, Mapping

PAGE = ROOT / "docs" / "states.md"
NOTHING = "no request"
"""The name in a diagram of the state without any request."""

TEXT = """# States

This page is written by `docs/diagrams.py`, from the tables that onceq decides by.

## A client in its session

A client is in one of four states, and each call of its clerk is legal in some of them
([`client_state.py`](../src/onceq/model/client_state.py), after BHM90 figures 1 and 7). A call that
is not legal is an error without effect, which says what is. The state is not stored: `connect()`
finds it by two rids, that of the last send and that of the last receive. If there was no send, or
the session was ended, the client is Connected. If both are the same, the last reply was received.
Otherwise the last request is outstanding. That is why a client may be killed at any moment, in any
state: the next life calls `connect()`, and is where the last one was. (In the diagram `connect`
leads to Connected, from where it branches at once, by the rids.)

{client}

Calls that leave a client in its state:

{staying}

## The last request of a client

After a crash the question is what became of the last request. There are five answers
([`recovery.py`](../src/onceq/model/recovery.py), after BN09 4.3), and an event leads from each to
the next. E is ours: the repository was restored, or failed over, to a time before the request.
Only a person's decision leads out of it, as neither sending the request again nor leaving it is
certain to be right.

{request}

## How the answer is found

Two witnesses are asked. The repository knows a rid or it does not; the client's own ledger, if it
keeps one, says how far the client had come. Neither is enough alone: a repository that does not
know a rid may never have had it, or may have lost it. Together they decide. Without a ledger, a
repository that was restored cannot be told from one that never had the request.

{ledger}

## A life of a source of a stream

What follows is of [streams](streams.md). A life of a source asks its stores what they have, has
them promise a new epoch, and admits them to it. Then it sends
([ADR 24](adr/0024-recovery-of-streams.md)). Several lives of one source may do so at once: what
stores promise decides between them, and Fenced is for ever. One that is overtaken {looks} times in
a row waits before it tries anew. This table (`SOURCE` in
[`states.py`](../src/onceq/streams/model/states.py)) is the only one of the page that nothing
decides by: it sums up what the programs of `streams/source` do.

{source}

## What a store does when it is asked

A store keeps of a stream the greatest epoch that it has promised, with the life that asked for it,
and the epoch in which it was last admitted. By these it answers each ask (`FENCE`, `ADMIT` and
`FRAME`, in the same file). What has no cell, or an empty one, is refused: the store answers what it
has promised.

To *fence*: the promise of an epoch to a life.

{fence}

To *admit*: the life has chosen the log that the stream goes on with.

{admit}

A *frame*: messages in a row, by where the first number lies in the store's log.

{frame}

## A part of a message

A message that is larger than a fragment takes several numbers. What a receiver does with a part
depends on whether it keeps a beginning
([`fragments.py`](../src/onceq/streams/model/fragments.py)). What it keeps is left out, and told,
when another message begins.

{part}

## Whether a receiver lives

As far as its source knows ([`confirming.py`](../src/onceq/streams/source/confirming.py)). That a
receiver has died is told as `ReceiverDead`.

{liveness}
"""


def diagram(rows: Iterable[tuple[str, str, str]], *, begins: str) -> str:
    """Return a Mermaid diagram: (state, state after it, label) for each arrow."""
    labels: dict[tuple[str, str], list[str]] = {}
    for state, following, label in rows:
        labels.setdefault((state, following), []).append(label)
    names = list(dict.fromkeys(name for pair in labels for name in pair))
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{name}" as {plain(name)}' for name in names if plain(name) != name]
    lines.append(f"    [*] --> {plain(begins)}")
    for (state, following), said in labels.items():
        lines.append(f"    {plain(state)} --> {plain(following)}: {', '.join(said)}")
    return "\n".join([*lines, "```"])


def plain(name: str) -> str:
    """Return a name without what Mermaid takes for its own."""
    return name.replace("-", "").replace(" ", "")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def client() -> str:
    """Return the diagram of a client's states: the calls that lead from one to another."""
    moves = client_state.TRANSITIONS.items()
    return diagram(
        (
            (state.value, following.value, shown(call))
            for (state, call), following in moves
            if following is not state
        ),
        begins=client_state.ClientState.DISCONNECTED.value,
    )


def staying() -> str:
    """Return the table of the calls that change no state."""
    rows: dict[str, list[str]] = {}
    for (state, call), following in client_state.TRANSITIONS.items():
        if following is state:
            rows.setdefault(state.value, []).append(shown(call))
    return table(("state", "calls"), ((name, ", ".join(said)) for name, said in rows.items()))


def shown(call: client_state.Call) -> str:
    """Return a call as a client writes it, or in words."""
    return client_state.SHOWN.get(call, call.value).removesuffix("()")


def request() -> str:
    """Return the diagram of a request's states."""
    return diagram(
        (
            (state or NOTHING, following or NOTHING, event.value)
            for (state, event), following in recovery.TRANSITIONS.items()
        ),
        begins=NOTHING,
    )


def ledger() -> str:
    """Return the table of what ledger and repository say together."""
    noted = dict.fromkeys(noted for noted, _ in recovery.LEDGER)
    head = ("the repository has", *(f"the ledger says {one.value}" for one in noted), "no ledger")
    return table(
        head,
        ((place.value, *row(place, noted), recovery.PLACES[place]) for place in recovery.Place),
    )


def row(place: recovery.Place, noted: Iterable[Noted]) -> list[str]:
    """Return the states for one place, by what the ledger says."""
    return [recovery.LEDGER[one, place] for one in noted]


def source() -> str:
    """Return the diagram of the states of a life of a source."""
    return diagram(
        (
            (state.value, following.value, finding.value)
            for (state, finding), following in states.SOURCE.items()
        ),
        begins=states.SourceState.LOOKING.value,
    )


def fence() -> str:
    """Return the table of what a store does that is asked for a promise."""
    rows = ((standing.value, deed.value) for standing, deed in states.FENCE.items())
    return table(("the ask", "the store"), rows)


def admit() -> str:
    """Return the table of what a store does that is to be admitted."""
    return grid("the ask", states.Memory, states.ADMIT)


def frame() -> str:
    """Return the table of what a store does with a frame."""
    found = {(f"{ask.value}; {has.value}", at): to for (ask, has, at), to in states.FRAME.items()}
    return grid("the ask; the store", states.Where, found)


def part() -> str:
    """Return the table of what a receiver does with a part of a message."""
    kept = {True: "a beginning is kept", False: "none is kept"}
    found = {(kept[has], of): deed for (has, of), deed in fragments.DEEDS.items()}
    return grid("", fragments.Part, found)


def liveness() -> str:
    """Return the diagram of whether a receiver lives."""
    return diagram(
        (
            (state.name.capitalize(), following.name.capitalize(), sign.value)
            for (state, sign), following in confirming.LIVENESS.items()
            if following is not state
        ),
        begins=confirming.Liveness.ALIVE.name.capitalize(),
    )


def grid(
    head: str,
    across: Iterable[enum.Enum],
    found: Mapping[Any, enum.Enum],
) -> str:
    """Return a table of what is found by pairs; across: what their second may be.

    A cell of which nothing is found is empty.
    """
    across = list(across)
    down = dict.fromkeys(first for first, _ in found)
    return table(
        (head, *(one.value for one in across)),
        ((text(one), *(text(found.get((one, other))) for other in across)) for one in down),
    )


def text(of: object) -> str:
    """Return what a cell says: of a member of an enum its value, of None nothing."""
    return "" if of is None else str(getattr(of, "value", of))


def page() -> str:
    """Return the whole page."""
    return TEXT.format(
        client=client(),
        staying=staying(),
        request=request(),
        ledger=ledger(),
        looks=states.LOOKS_MAX,
        source=source(),
        fence=fence(),
        admit=admit(),
        frame=frame(),
        part=part(),
        liveness=liveness(),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
