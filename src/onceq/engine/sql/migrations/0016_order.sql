-- Order (spec Q8, ADR 33). ordered: the queue is one line. begun: which element of it was claimed and has not ended; a
-- hint, which whoever claims puts right. ring: 0, as the queue is one line.
alter table onceq.queue add column ordered boolean not null default false;
create table onceq.begun (
    queue_id integer not null references onceq.queue,
    ring     bigint not null,
    seq      bigint not null,
    primary key (queue_id, ring, seq)
);
