"""What is there in the end: every place of every request, and the ledger of effects.

Made by whoever ran the history, from the requests view and a ledger of their own; kept beside the
files of events (`files.save_final`), and judged by `onceq.history`.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceq.history.events.kinds import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rid is at the end: a row of the requests view. state: as in `RequestState`.

    correlation_id: for a reply, the eid of the request that it answers. is_volatile: its queue was
    not durable, so a crash of the database may have taken it, or what became of it.
    """

    registrant: str | None
    thread: str | None
    rid: str
    eid: str
    role: str
    state: str
    outcome: str | None
    aborts: int = 0
    code: str | None = None
    correlation_id: str | None = None
    is_volatile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalState:
    """What is there in the end.

    places: every row of the requests view. effects: the ledger. finished: faults had stopped and
    everything had time to finish (G12). effects_expected: each 'done' has an effect; effects_each:
    how many, if known. abort_limit: of the queues, None if they differ. retry_limit: of the queues,
    the largest if they differ. all_recorded: whoever sent, enqueued, killed or redrove recorded it,
    so nobody did what nobody recorded. aborts_recorded: every abort is among the events.
    unrecorded: the registrants whose requests are executed by someone who records no execution
    (Spark's tasks). slack: how long after its event a fault may still be felt, in units of `at`.
    """

    places: tuple[Place, ...]
    effects: tuple[Effect, ...]
    finished: bool = True
    effects_expected: bool = True
    effects_each: int | None = None
    abort_limit: int | None = None
    retry_limit: int = 10
    all_recorded: bool = False
    aborts_recorded: bool = False
    unrecorded: tuple[str, ...] = ()
    slack: int = 0
