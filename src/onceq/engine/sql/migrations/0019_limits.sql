-- Limits of queues (spec Q13, ADR 35). limited: the queue has a row in limits. depth, bytes: the most elements, and the
-- most bytes of their bodies together, that it takes; null: as many as there are.
alter table onceq.queue add column limited boolean not null default false;
create table onceq.limits (
    queue_id integer primary key references onceq.queue,
    depth    bigint check (depth between 1 and 1000000000000),
    bytes    bigint check (bytes between 1 and 1000000000000000)
);
