"""Who is on the scoreboard, in which setting, and what each does not promise, fairly said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from typing import LiteralString

ONCEQ = "onceq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A system in one setting (outside: the control of the harness).

    finished: SQL that counts the requests it holds for done well; gave_up: those it gave up.
    how: the setting, and where it is documented; weaker: what may go wrong, by its design.
    """

    system: str
    setting: Literal["default", "safest", "outside"]
    finished: LiteralString
    gave_up: LiteralString
    how: str
    weaker: str = ""

    @property
    def name(self) -> str:
        """The system and its setting, for people."""
        return f"{self.system}, {self.setting}"


_PROCRASTINATE: LiteralString = (
    "select count(*) from procrastinate_jobs where task_name = 'handle' and status = 'succeeded'"
)
_PGQUEUER: LiteralString = (
    "select count(distinct job_id) from pgqueuer_log"
    " where entrypoint = 'handle' and status = 'successful'"
)
_ABSURD: LiteralString = "select count(*) from absurd.t_board where state = 'completed'"
_DBOS: LiteralString = "select count(*) from dbos.workflow_status where status = 'SUCCESS'"

_ONCEQ: LiteralString = "select count(*) from onceq.history where outcome = 'done'"
_PROCRASTINATE_LOST: LiteralString = (
    "select count(*) from procrastinate_jobs where task_name = 'handle' and status = 'failed'"
)
_PGQUEUER_LOST: LiteralString = (
    "select count(distinct job_id) from pgqueuer_log"
    " where entrypoint = 'handle' and status in ('exception', 'failed')"
)
_ABSURD_LOST: LiteralString = "select count(*) from absurd.t_board where state = 'failed'"
_DBOS_LOST: LiteralString = (
    "select count(*) from dbos.workflow_status"
    " where status in ('ERROR', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED')"
)
_ONCEQ_LOST: LiteralString = "select count(*) from onceq.history where outcome = 'failed'"

CONTROL = Subject(
    system=ONCEQ,
    setting="outside",
    finished=_ONCEQ,
    gave_up=_ONCEQ_LOST,
    how="a handler that writes its row on a connection of its own, which no guarantee covers",
)
SUBJECTS = (
    Subject(
        system=ONCEQ,
        setting="default",
        finished=_ONCEQ,
        gave_up=_ONCEQ_LOST,
        how="a native server as it comes",
    ),
    Subject(
        system="procrastinate",
        setting="default",
        finished=_PROCRASTINATE,
        gave_up=_PROCRASTINATE_LOST,
        how="as it comes",
        weaker="a call of a process that died stays marked as running until somebody acts",
    ),
    Subject(
        system="procrastinate",
        setting="safest",
        finished=_PROCRASTINATE,
        gave_up=_PROCRASTINATE_LOST,
        how="with the periodic recipe for stalled calls of its guide to production",
        weaker="the row and the end of the call are two commits, so a stalled call may have been"
        " done; the recipe counts no attempts",
    ),
    Subject(
        system="pgqueuer",
        setting="default",
        finished=_PGQUEUER,
        gave_up=_PGQUEUER_LOST,
        how="as it comes, but one at a time",
        weaker="at least once: the row and the end of the entry are two commits; a death is no"
        " attempt",
    ),
    Subject(
        system="pgqueuer",
        setting="safest",
        finished=_PGQUEUER,
        gave_up=_PGQUEUER_LOST,
        how="its executor that counts attempts, and failed entries held, as its guides to retries"
        " and failures say; all tables logged",
        weaker="as before: what is counted are exceptions",
    ),
    Subject(
        system="absurd",
        setting="default",
        finished=_ABSURD,
        gave_up=_ABSURD_LOST,
        how="as it comes, the row written by the handler itself",
        weaker="at least once: claim, row and completion are three commits",
    ),
    Subject(
        system="absurd",
        setting="safest",
        finished=_ABSURD,
        gave_up=_ABSURD_LOST,
        how="the row written in a step, as its README shows",
        weaker="the row and the step's checkpoint are two commits",
    ),
    Subject(
        system="dbos",
        setting="default",
        finished=_DBOS,
        gave_up=_DBOS_LOST,
        how="the row written in a plain step",
        weaker="the row and the step's checkpoint are two commits",
    ),
    Subject(
        system="dbos",
        setting="safest",
        finished=_DBOS,
        gave_up=_DBOS_LOST,
        how="the row written in a transaction of its datasource, as its documentation advises",
        weaker="only what goes through the datasource is protected; the workflows of a dead process"
        " wait for a process of its name, or for its paid service",
    ),
)
