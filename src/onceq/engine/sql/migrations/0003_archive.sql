-- The archive (spec P4): in which order rows were written that are kept for good, up to which they
-- are in files, and which files those are.

-- One number for each row of history and attempt. It is taken after the transaction has its id: once
-- every transaction has ended that had one when a number was read, no row up to it is still to come.
create sequence onceq.record_seq start 2 cache 1;  -- more than 1 would give numbers out of turn
alter table onceq.history add column record_no bigint;  -- null: 1, for it was written before this
alter sequence onceq.record_seq owned by onceq.history.record_no;
alter table onceq.history alter column record_no
    set default case when pg_current_xact_id() is not null then nextval('onceq.record_seq') end;
alter table onceq.attempt add column record_no bigint;
alter table onceq.attempt alter column record_no
    set default case when pg_current_xact_id() is not null then nextval('onceq.record_seq') end;
create index history_record on onceq.history using brin (record_no) with (pages_per_range = 16);
create index attempt_record on onceq.attempt using brin (record_no) with (pages_per_range = 16);

-- One row, once there was a run. epoch: the fence of runs; the newest wins. root: where the files are.
-- archived: the last record that is in files. settled: the last of which none before is still to
-- come; soon: the next such, once all transactions before soon_xid have ended.
create table onceq.archive (
    is_one   boolean primary key default true check (is_one),
    epoch    bigint not null default 0,
    root     text,
    archived bigint not null default 0,
    settled  bigint not null default 0,
    soon     bigint,
    soon_xid xid8
);

-- A folder of files, noted before it is written. One of an epoch that is over and in no manifest is
-- of a run that died: nobody can commit it any more. One that was replaced was in the manifest, and
-- is now in no manifest; it has the epoch that replaced it.
create table onceq.archive_run (
    run         uuid primary key,
    epoch       bigint not null,
    replaced_at timestamptz
);

-- The manifest: what is not in it is no part of the archive. path: below the root. since, until: the
-- records of its folder. is_trimmed: the tables hold nothing of it any more.
create table onceq.archive_file (
    path       text primary key,
    kind       text not null check (kind in ('history', 'attempt')),
    day        date not null,
    rows       bigint not null check (rows > 0),
    bytes      bigint not null,
    first_us   bigint not null,  -- microseconds since 1970
    last_us    bigint not null,
    since      bigint not null,
    until      bigint not null,
    sha256     bytea not null,
    run        uuid not null references onceq.archive_run,
    is_trimmed boolean not null default false
);
create index archive_file_run on onceq.archive_file (run);
