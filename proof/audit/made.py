"""A long history as servers would have left it: with many clients, and every end that there is.

Used by proof/audit/part.py. Row n is of client n / 100 modulo CLIENTS, and its last digits say how
it ended (`_ENDS`). Each client has acknowledged all but its last replies, which wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import onceq
from proof.audit.plants import Of
from proof.harness.ledger import ask

CLIENTS: Final = 50
BLOCK: Final = 100 * CLIENTS
"""Each client has as many rows of each kind in this many rows."""
LIMIT: Final = 2
QUEUE: Final = onceq.Queue("orders", bytes, bytes, abort_limit=LIMIT)
EACH: Final = 2
_SETUP: Final = """
create table {r}.booked (eid uuid, key text, xid text, rid text);
insert into {r}.registrant (name, thread, epoch, state)
    select 'till-' || n, '', 1, 'connected' from generate_series(0, {clients} - 1) n;
insert into {r}.queue (name, kind) select 'reply-' || registrant_id, 'reply' from {r}.registrant;
update {r}.registrant r set reply_queue_id = q.queue_id from {r}.queue q
    where q.name = 'reply-' || r.registrant_id
"""
"""Made once, in an empty repository."""
_MADE: Final = """
select n, (md5('made ' || n))::uuid as eid, 'order-' || n as rid, mod(n, 100) as kind,
    r.registrant_id, r.reply_queue_id, q.queue_id, q.error_queue_id,
    clock_timestamp() - make_interval(secs => mod(n * 7919, 20 * 86400)) as ended
from generate_series({first}::bigint, {last} - 1) n
    join {r}.registrant r on r.name = 'till-' || mod(n / 100, {clients})
    cross join {r}.queue q where q.name = 'orders'
"""
_ENDS: Final = """
select *, case when kind in (0, 4, 6) then 'failed' when kind = 2 then 'cancelled'
        when kind = 3 then 'expired' else 'done' end::{r}.outcome as outcome,
    case when kind in (0, 6) then 2 when kind in (1, 4) then 1 else 0 end as aborts,
    case when kind in (0, 6) then 'ValueError' when kind = 4 then 'Reject' end as code,
    case when kind <> 5 then registrant_id end as who
from ({made}) m
"""
_ROWS: Final = (
    """
insert into {r}.history (finished_at, enqueued_at, started_at, send_no, server, queue_id,
        registrant_id, aborts, role, outcome, eid, rid, code, sha256)
    select ended, ended - interval '3 s', ended - interval '20 ms',
        case when who is not null then n + 1 end, 7, queue_id, who, aborts,
        case when who is null then 'datagram' else 'request' end::{r}.role,
        outcome, eid, rid, code, sha256('x') from ({ends}) e
""",
    """
insert into {r}.history (finished_at, enqueued_at, queue_id, aborts, role, outcome, eid, rid,
        correlation_id, sha256)
    select ended, ended, queue_id, 0, 'datagram', 'done', md5('again ' || n)::uuid,
        md5('again ' || n)::uuid::text, eid::text, sha256('x') from ({ends}) e where kind = 6
""",
    """
insert into {r}.redrive (old_eid, new_eid, new_rid)
    select eid, md5('again ' || n)::uuid, md5('again ' || n)::uuid::text
    from ({ends}) e where kind = 6
""",
    """
insert into {r}.element (queue_id, failed_of, lane, role, rid, eid, enqueued_at, aborts, code,
        send_no, sha256, body)
    select error_queue_id, who, 12 /* held */, 'failed', rid, eid, ended, aborts, code,
        n + 1, sha256('x'), ''
    from ({ends}) e where kind in (0, 4)
""",
    """
insert into {r}.attempt (ended_at, eid, charge, code)
    select ended, eid, case kind when 4 then 'reject' else 'charge' end, code
    from ({ends}) e cross join lateral generate_series(1, aborts) a
""",
    """
insert into {r}.booked select eid, key, n::text, rid
    from (select n, eid, rid from ({ends}) e where outcome = 'done'
        union all select n, md5('again ' || n)::uuid, null from ({ends}) e where kind = 6) d
        cross join unnest(array['booked', 'billed']) key
""",
)
_LAST: Final = (
    """
insert into {r}.element (queue_id, registrant_id, lane, role, outcome, rid, eid, correlation_id,
        enqueued_at, send_no, sha256, body)
    select reply_queue_id, registrant_id, 0 /* reply */, 'reply', outcome, rid, gen_random_uuid(),
        eid::text, ended, n + 1, sha256('x'), ''
    from ({ends}) e where kind = 99 and mod(registrant_id, 2) = 0 or kind = 98
""",
    """
insert into {r}.registration (registrant_id, queue_id, kind, rid, sent_rid, sent_no)
    select registrant_id, reply_queue_id, 'dequeue', rid, rid, n + 1
    from ({ends}) e where kind = case when mod(registrant_id, 2) = 0 then 97 else 99 end
""",
)
"""For the last block: what is waiting, and what each client has said last."""


@dataclass(frozen=True, slots=True)
class Made:
    """A repository with this many rows, a multiple of BLOCK."""

    url: str
    repository: str
    rows: int

    def begin(self) -> None:
        """Makes an empty repository ready for them."""
        self._do(_SETUP)

    def write(self, first: int, last: int) -> None:
        """Writes the rows of these numbers, the last not included."""
        for query in _ROWS:
            self._do(query, first, last)

    def end(self) -> None:
        """Writes what else is there: waiting replies, and registrations."""
        for query in _LAST:
            self._do(query, self.rows - BLOCK, self.rows)

    def numbers(self) -> dict[Of, list[int]]:
        """Returns numbers of requests of each kind, none of them archived if any is not."""
        base = self.rows - BLOCK
        return {
            Of.DONE: [base + 100 * n + 50 for n in range(20)],
            Of.CHARGED: [base + 1],
            Of.REPLIED: [base + 100 * n + 98 for n in range(10)],
            Of.LAST: [base + 199],
            Of.TOLD: [base + 299],
            Of.HELD: [base, base + 100],
            Of.REJECTED: [base + 4],
            Of.REDRIVEN: [base + 6],
            Of.KILLED: [base + 2],
        }

    def break_at(self, number: int, do: str) -> None:
        """Breaks something at a row."""
        ((eid,),) = ask(self.url, "select md5('made ' || %s)::uuid::text", str(number))
        self._do(do.replace("{eid}", str(eid)))

    def _do(self, query: str, first: int = 0, last: int = 0) -> None:
        text = query.replace("{ends}", _ENDS).replace("{made}", _MADE)
        for name, value in {"first": first, "last": last, "clients": CLIENTS}.items():
            text = text.replace(f"{{{name}}}", str(value))
        ask(self.url, text.replace("{r}", self.repository))
