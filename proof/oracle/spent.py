"""Requests that have ended, as a send looks for them: in history, or left over of what was trimmed.

Private to the oracle, but for `trim`; the twin of `spent.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from proof.oracle.rows import Blocked

if TYPE_CHECKING:
    from proof.oracle.rows import ElementRow, HistoryRow, Transaction
    from proof.oracle.state import State


def ended(state: State, tx: Transaction, registrant_id: int) -> list[ElementRow]:
    """Returns the requests of a registrant that have ended, those whose history is there first."""
    kept = [row.element for row in state.history.seen(tx)]
    return [row for row in [*kept, *state.spent.seen(tx)] if row.registrant_id == registrant_id]


def trim(state: State, tx: Transaction) -> int:
    """Removes the history that may go, whenever it ended; returns how many rows.

    What somebody still asks for stays (`archive_removable`). So does the history of a registrant
    whose anchor another transaction has, if none of it ever went before.
    """
    return sum(
        may_lose(state, tx, row.element.registrant_id) and spend(state, tx, key)
        for key, row in removable(state, tx)
    )


def removable(state: State, tx: Transaction) -> list[tuple[int, HistoryRow]]:
    """Returns the rows of history that nobody asks for any more, with their keys."""
    keys = list({**state.history.rows, **state.history.pending})
    rows = [(key, state.history.get(tx, key)) for key in keys]
    return [
        (key, row)
        for key, row in rows
        if row is not None and not _is_asked_for(state, tx, row.element)
    ]


def spend(state: State, tx: Transaction, key: int) -> bool:
    """Removes a row of history; its rid stays known, unless its client's name was closed."""
    row = state.history.get(tx, key)
    if row is None:
        return False
    who = row.element.registrant_id
    if who is not None and not _is_closed(state, tx, who):
        state.spent.put(tx, state.spent.new_key(), row.element)
    state.history.put(tx, key, None)
    return True


def drop_spent(state: State, tx: Transaction, registrant_id: int) -> None:
    """Forgets what is left of the requests of a registrant whose history was trimmed."""
    for key in list({**state.spent.rows, **state.spent.pending}):
        row = state.spent.get(tx, key)
        if row is not None and row.registrant_id == registrant_id:
            state.spent.put(tx, key, None)


def _is_closed(state: State, tx: Transaction, registrant_id: int) -> bool:
    who = state.registrants.get(tx, registrant_id)
    return who is not None and who.is_closed


def _is_asked_for(state: State, tx: Transaction, element: ElementRow) -> bool:
    request = (element.registrant_id, element.rid)
    return any(
        row.eid == element.eid or (row.registrant_id is not None and request == _named(row))
        for row in state.elements.seen(tx)
    ) or any(
        row.registrant_id == element.registrant_id and element.rid in {row.rid, row.sent_rid}
        for row in state.registrations.seen(tx)
    )


def _named(row: ElementRow) -> tuple[int | None, str]:
    return row.registrant_id, row.rid


def may_lose(state: State, tx: Transaction, registrant_id: int | None) -> bool:
    """Lets history of a registrant be trimmed; False: somebody else has its anchor."""
    if registrant_id is None:
        return True
    who = state.registrants.get(tx, registrant_id)
    if who is None or who.has_spent:
        return True
    try:
        state.lock(tx, "registrant", registrant_id, exclusive=True)
    except Blocked:
        return False
    state.registrants.put(tx, registrant_id, replace(who, has_spent=True))
    return True
