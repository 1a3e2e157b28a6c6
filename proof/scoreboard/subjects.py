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
        weaker="a call of a process that died stays marked as running until somebody acts, as its"
        ' how-to guide "Retry stalled jobs" says',
    ),
    Subject(
        system="procrastinate",
        setting="safest",
        finished=_PROCRASTINATE,
        gave_up=_PROCRASTINATE_LOST,
        how='the periodic task of its how-to guide "Retry stalled jobs", every 2 s and not every 10'
        " minutes; seconds_since_heartbeat, stalled_worker_timeout and update_heartbeat_interval"
        " shortened to match, as the guide asks",
        weaker="the row and the end of the call are two commits, so a stalled call may have"
        " written its row; the task retries what is stalled however often it was tried: the limit"
        " of a retry strategy is looked at when a handler raises",
    ),
    Subject(
        system="pgqueuer",
        setting="default",
        finished=_PGQUEUER,
        gave_up=_PGQUEUER_LOST,
        how="as it comes (all tables logged), with concurrency_limit=1; what a dead process held is"
        " picked again when its heartbeat is older than heartbeat_timeout",
        weaker="at least once: the row and the end of the entry are two commits; a death is no"
        " attempt",
    ),
    Subject(
        system="pgqueuer",
        setting="safest",
        finished=_PGQUEUER,
        gave_up=_PGQUEUER_LOST,
        how='DatabaseRetryEntrypointExecutor with on_failure="hold", as under "Auto-retry with a'
        ' safety net" in its guide "Holding Failed Jobs"; else as before',
        weaker='as before: the executor counts exceptions, and its guide "Database-Level Retry"'
        " leaves deaths to the heartbeat, which counts nothing",
    ),
    Subject(
        system="absurd",
        setting="default",
        finished=_ABSURD,
        gave_up=_ABSURD_LOST,
        how="the row written by the handler outside of any step, against the advice of its page"
        ' "Concepts"',
        weaker="at least once: claim, row and completion are three commits",
    ),
    Subject(
        system="absurd",
        setting="safest",
        finished=_ABSURD,
        gave_up=_ABSURD_LOST,
        how='the row written in a step, as under "Steps (Checkpoints)" in its page "Concepts"',
        weaker="the row and the step's checkpoint are two commits: a step that died between them is"
        " executed again",
    ),
    Subject(
        system="dbos",
        setting="default",
        finished=_DBOS,
        gave_up=_DBOS_LOST,
        how="the row written in a plain step; the process always started with the same executor id"
        " and application version, so that it recovers its own workflows",
        weaker="the row and the step's checkpoint are two commits: a step that died between them is"
        " executed again",
    ),
    Subject(
        system="dbos",
        setting="safest",
        finished=_DBOS,
        gave_up=_DBOS_LOST,
        how="the row written in a transaction of a SQLAlchemyDatasource, as its tutorial"
        ' "Transactions & Datasources" advises; else as before',
        weaker="only what goes through the datasource is protected; the workflows of a dead process"
        " wait for a process of the same executor id, or for DBOS Conductor",
    ),
)
