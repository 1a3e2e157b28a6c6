-- Old requests (spec C10, Q4): when each was begun, how each of its aborts came about, and the
-- indexes by which they are found. An abort writes a row; what never fails pays for none.

alter table onceq.history add column started_at timestamptz;

-- One row for each abort of an element, also of one that was not charged. charge: what it came to.
-- server: the incarnation; host, pid: its process, which is forgotten when the incarnation ends.
create table onceq.attempt (
    ended_at timestamptz not null,
    server   bigint,
    pid      integer,
    eid      uuid not null,
    charge   text not null,
    code     text,
    error    text,
    host     text
);
create index attempt_of on onceq.attempt (eid, ended_at);

-- By registrant, or by queue; then by outcome and time, so that the few that failed among many are
-- found without reading the others. Those of one batch have one finished_at. The registrant's is an
-- index of an expression so that no other query may take it: send looks for (rid, registrant_id), and
-- a plan that was made while a registrant had few rows would read all of them, later, at each send.
create index history_of_registrant on onceq.history ((registrant_id::bigint), outcome, finished_at);
create index history_of_queue on onceq.history (queue_id, outcome, finished_at);
