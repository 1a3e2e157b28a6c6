"""What holds of a request that is asked about, as the database tells it. Pure.

`reasons` reads from it why the request does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from onceq.model.element import Lane, Role

COUNTED_MAX: Final = 1000
"""What stands before an element is counted up to this."""


def moment(when: datetime | None) -> str:
    """Returns a time as a sentence has it, in UTC."""
    return "an unknown time" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What holds of an element that is in a queue, at `now` of the database. See explain.sql.

    holder: what has claimed it: "server", "dequeuer", "spark", "relay", "nobody" (that is known);
    None: it is not claimed. returned: how many executions were aborted. before: up to COUNTED_MAX.
    """

    now: datetime
    eid: UUID
    rid: str
    registrant: str | None
    thread: str | None
    queue: str
    lane: int
    aborts: int
    returned: int
    enqueued_at: datetime
    not_before: datetime | None
    expires_at: datetime | None
    is_started: bool
    is_strict: bool
    is_lost: bool
    is_hidden: bool
    locked_by: int | None
    line_by: int | None
    head: UUID | None
    head_rid: str | None
    head_rule: str | None
    rival: UUID | None
    holder: str | None
    holder_name: str | None
    holder_host: str | None
    holder_pid: int | None
    is_alive: bool | None
    began_at: datetime | None
    missed_at: datetime | None
    sessions: int
    busy: int
    gone: int
    others: int
    before: int
    code: str | None = None
    role: str = Role.REQUEST
    paused_until: datetime | None = None

    @property
    def phase(self) -> str:
        """Which reasons may hold: of what is "held", "claimed", or "waits"."""
        if self.lane == Lane.HELD:
            return "held"
        return "waits" if self.holder is None else "claimed"

    @property
    def resumes(self) -> str:
        """When its queue goes on."""
        return moment(self.paused_until)

    @property
    def is_early(self) -> bool:
        """Whether its time has not come."""
        late = self.lane in {Lane.DUE, Lane.SUSPECT}
        return late and self.not_before is not None and self.not_before > self.now

    @property
    def met_full_queue(self) -> bool:
        """Whether it was undone since a queue into which its handler enqueued was full."""
        return self.is_early and self.code == "QueueFull"

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= self.now

    @property
    def until(self) -> str:
        """When its time comes, and in how many seconds."""
        left = 0.0 if self.not_before is None else (self.not_before - self.now).total_seconds()
        return f"{moment(self.not_before)}, in {left:.1f} s"

    @property
    def expired(self) -> str:
        """When its time was over."""
        return moment(self.expires_at)

    @property
    def missed_since(self) -> str:
        """Since when the process that ran it is missing."""
        return moment(self.missed_at)

    @property
    def progress(self) -> str:
        """How far whoever has claimed it is."""
        begun = self.began_at is not None
        return f"has run it since {moment(self.began_at)}" if begun else "has not begun it"

    @property
    def ended(self) -> str:
        """How many sessions of servers of its queue have ended, if any."""
        return f"; of {self.gone} that have ended nobody has taken over" if self.gone else ""

    @property
    def number_before(self) -> str:
        """How many come before it."""
        return f"at least {COUNTED_MAX:,}" if self.before >= COUNTED_MAX else str(self.before)

    @property
    def rule(self) -> str:
        """Why the head of a strict queue is the head."""
        return HEAD_RULES[self.head_rule or "sent"]


HEAD_RULES: Final = {
    "begun": "it began and has not ended",
    "redriven": "it was redriven",
    "sent": "it was sent first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """What is known of a rid that is nowhere. registrant, rid: as asked.

    is_known: there is such a client. open_by: the backend of a transaction of this client; outcome,
    eid: of a request whose history was trimmed. namesakes: other clients with this rid.
    similar_names: clients with nearly this name. At most 5 of each.
    """

    is_known: bool
    open_by: int | None
    open_since: datetime | None
    outcome: str | None
    eid: UUID | None
    namesakes: list[str]
    similar_names: list[str]

    phase = "unknown"

    @property
    def began(self) -> str:
        """When that transaction began."""
        return moment(self.open_since)

    @property
    def names(self) -> str:
        """Those other clients, as a list."""
        return ", ".join(repr(one) for one in self.namesakes)

    @property
    def similar(self) -> str:
        """Those similar names, as a list."""
        return ", ".join(repr(one) for one in self.similar_names)
