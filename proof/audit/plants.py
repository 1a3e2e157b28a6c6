"""Ways to break a repository, each by SQL at one request: an audit must find it, by name and rid.

Used by the part `audit` and by the tests of the audit. A repository of theirs has a table `booked`
(eid uuid, key text, xid text, rid text), two rows for each request that is done.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Of(enum.Enum):
    """What kind of request is broken."""

    DONE = "is done, uncharged; its reply was acknowledged"
    CHARGED = "is done, after an abort"
    REPLIED = "is done, and its reply waits, which is not the last of its client"
    LAST = "is the last of its client, and its reply waits"
    TOLD = "is of a client whose registration knows of its last send"
    HELD = "failed at its limit, and is held"
    REJECTED = "was rejected"
    REDRIVEN = "failed, and was redriven"
    KILLED = "was cancelled"


@dataclass(frozen=True, slots=True)
class Plant:
    """A violation. do: SQL, in which {eid} stands for the eid. names: the rid, if another."""

    name: str
    guarantee: str
    of: Of
    do: str
    names: str = ""


_ROW: Final = (
    "finished_at, enqueued_at, send_no, queue_id, registrant_id, aborts, role, outcome, eid, "
    "reply_eid, rid, correlation_id, code, sha256"
)
_OTHER: Final = _ROW.replace(" eid,", " gen_random_uuid(),")
_LIVE: Final = (
    "queue_id, registrant_id, lane, role, rid, eid, enqueued_at, sha256, body, send_no, failed_of"
)
PLANTS: Final = (
    Plant(
        "finished twice",
        "G4",
        Of.DONE,
        f"""insert into {{r}}.history ({_ROW})
            select {_ROW} from {{r}}.history where eid = '{{eid}}'""",
    ),
    Plant(
        "two elements of one rid",
        "G4",
        Of.DONE,
        f"""insert into {{r}}.history ({_ROW})
            select {_OTHER} from {{r}}.history where eid = '{{eid}}'""",
    ),
    Plant(
        "finished and still there",
        "G4",
        Of.DONE,
        f"""insert into {{r}}.element ({_LIVE})
            select queue_id, registrant_id, 5, 'request', rid, eid, now(), sha256, '', send_no, null
            from {{r}}.history where eid = '{{eid}}'""",
    ),
    Plant(
        "the last reply is gone",
        "G5",
        Of.LAST,
        "delete from {r}.element where role = 'reply' and correlation_id = '{eid}'",
    ),
    Plant(
        "a reply that history denies",
        "G2",
        Of.REPLIED,
        """update {r}.element set outcome = 'failed'
            where role = 'reply' and correlation_id = '{eid}'""",
    ),
    Plant(
        "the reply of another",
        "G1",
        Of.REPLIED,
        """update {r}.element set correlation_id = 'x'
            where role = 'reply' and correlation_id = '{eid}'""",
    ),
    Plant(
        "failed, and not in its error queue",
        "G4",
        Of.HELD,
        "delete from {r}.element where role = 'failed' and eid = '{eid}'",
    ),
    Plant(
        "done, and in an error queue",
        "G4",
        Of.DONE,
        f"""insert into {{r}}.element ({_LIVE})
            select queue_id, null, 12, 'failed', rid, eid, now(), sha256, '', send_no, registrant_id
            from {{r}}.history where eid = '{{eid}}'""",
    ),
    Plant(
        "an abort forgotten",
        "G7",
        Of.CHARGED,
        "update {r}.history set aborts = 0 where eid = '{eid}'",
    ),
    Plant(
        "an abort of nothing",
        "G7",
        Of.DONE,
        "insert into {r}.attempt (ended_at, eid, charge) values (now(), '{eid}', 'charge')",
    ),
    Plant(
        "failed before its limit",
        "G7",
        Of.HELD,
        "update {r}.history set aborts = 1 where eid = '{eid}'",
    ),
    Plant(
        "lost, and its reply waits",
        "G4",
        Of.REPLIED,
        "delete from {r}.history where eid = '{eid}'",
    ),
    Plant(
        "an effect twice",
        "G2",
        Of.DONE,
        """insert into {r}.booked
            select * from {r}.booked where eid = '{eid}' and key = 'billed'""",
    ),
    Plant(
        "effects of two transactions",
        "G2",
        Of.DONE,
        "update {r}.booked set xid = 'another' where eid = '{eid}' and key = 'billed'",
    ),
    Plant("no effect", "G2", Of.DONE, "delete from {r}.booked where eid = '{eid}'"),
    Plant(
        "an effect of what was rejected",
        "G2",
        Of.REJECTED,
        "insert into {r}.booked values ('{eid}', 'booked', 'x')",
    ),
    Plant(
        "an effect of what was killed",
        "G8",
        Of.KILLED,
        "insert into {r}.booked values ('{eid}', 'booked', 'x')",
    ),
    Plant(
        "redriven, and still held",
        "G4",
        Of.REDRIVEN,
        f"""insert into {{r}}.element ({_LIVE})
            select queue_id, null, 12, 'failed', rid, eid, now(), sha256, '', send_no, registrant_id
            from {{r}}.history where eid = '{{eid}}'""",
    ),
    Plant(
        "a connect would show what never was",
        "G6",
        Of.TOLD,
        """update {r}.registration set sent_rid = 'never' where registrant_id =
            (select registrant_id from {r}.history where eid = '{eid}')""",
        names="never",
    ),
)
