-- Terms (spec Q4): at how many aborts what an incarnation claims of a queue fails, and where it is held then, if not as
-- the queue says. seq: of one element; 0: all that it claims. Null: as the queue says. They end with the incarnation.
create table onceq.terms (
    incarnation    bigint not null references onceq.server (incarnation) on delete cascade,
    queue_id       integer not null,
    seq            bigint not null,
    abort_limit    smallint check (abort_limit between 1 and 1000),
    error_queue_id integer references onceq.queue,
    primary key (incarnation, queue_id, seq)
);
-- Holding (spec G3, ADR 41). holds: what fails at its abort limit is held in the queue itself, for an operator, without reply.
alter table onceq.queue add column holds boolean not null default false;
-- The circuit breaker (spec Q4, ADR 41). paused_until: until when nothing is dequeued, because the environment failed; null: it
-- is not paused. breaker: of a queue that had faults, how many there were since `since` with nothing done between, how long its last pause is
-- (0: none yet), which element's abort began that, and the transaction that counted last.
alter table onceq.queue add column paused_until timestamptz;
create table onceq.breaker (
    queue_id   integer primary key references onceq.queue,
    since      timestamptz not null,
    faults     integer not null,
    pause_s    integer not null,
    tripped_on bigint,
    counted_in bigint not null
);
