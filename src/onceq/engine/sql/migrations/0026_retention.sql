-- For how long what has ended is kept, by queue (spec Q17). A queue without a row keeps it until somebody trims.
-- outcome, finished_at: how far the present look through its history is; null: it begins. look_at: when to go on.
create table onceq.retention (
    queue_id     integer primary key references onceq.queue,
    history_days integer not null check (history_days between 1 and 36500),
    outcome      onceq.outcome,
    finished_at  timestamptz,
    look_at      timestamptz not null default '-infinity'
);
