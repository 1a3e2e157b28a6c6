-- Periodic requests (ADR 39). revision: new whenever one is made, changed, paused or resumed: a tick that was computed for
-- another one does nothing. schedule, zone: what Python computes times from. missed: 'last', 'all' or 'none'. next_at: the
-- tick that is due next. look_at: when to try that; later than next_at after it was refused, for the reason in `error`.
-- ticked_at, eid: of the last request. Their index is small: it holds what is not paused.
create table onceq.periodic (
    name         text collate "C" primary key check (name ~ '^[A-Za-z0-9_.-]{1,63}$'),
    revision     uuid not null default gen_random_uuid(),
    queue        text not null,
    body         bytea not null,
    content_type text,
    schedule     text not null,
    zone         text not null,
    missed       text not null check (missed in ('last', 'all', 'none')),
    overlap      boolean not null,
    paused       boolean not null default false,
    next_at      timestamptz not null,
    look_at      timestamptz not null,
    ticked_at    timestamptz check (ticked_at < next_at),
    eid          uuid,
    error        text,
    created_at   timestamptz not null
);
create index periodic_due on onceq.periodic (look_at) where not paused;
