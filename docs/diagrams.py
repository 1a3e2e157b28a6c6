"""Write `docs/states.md`: the state tables of the model as diagrams and tables.

`python docs/diagrams.py`. A test compares the page with what would be written. The tables are
those that the clerk decides by, so the page cannot say anything else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from onceq.model import client_state, recovery  # noqa: E402 - its path comes first
from onceq.model.ledger import Noted  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def page() -> str:
    """Return the whole page."""
    return TEXT.format(client=client(), staying=staying(), request=request(), ledger=ledger())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
