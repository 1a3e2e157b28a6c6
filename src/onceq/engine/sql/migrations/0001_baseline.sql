-- The baseline of a repository: one schema holds all of it. `onceq.` is replaced by the
-- repository's own schema name when this file is applied.
--
-- Lock order, everywhere: registrants by id (advisory), then server slots (advisory), then
-- elements by seq. `claimed_by` and `aborts` stand in no index and no predicate of one, so
-- that a claim is a HOT update.

create table onceq.repository (
    only_row         boolean primary key default true check (only_row),
    name             text not null,
    repository_id    uuid not null default gen_random_uuid(),
    schema_version   integer not null,
    tables_sha256    text not null,  -- of the migrations that it has
    functions_sha256 text not null,
    migrated_at      timestamptz not null default clock_timestamp(),
    settled          bigint not null default 0  -- bumped to give a doubt's answer a commit of its own
);

create type onceq.role as enum ('datagram', 'request', 'reply', 'failed');
create type onceq.outcome as enum ('done', 'failed', 'cancelled', 'expired', 'dequeued');

-- Identifies the life of the database: UNLOGGED, so a crash of the database empties it.
create unlogged table onceq.life (life bigint not null);
create sequence onceq.life_seq;

create table onceq.queue (
    queue_id        integer generated always as identity primary key,
    lanes           smallint[] not null default '{5}',  -- the fresh lanes in use, in order
    low             regclass[] not null default '{}',   -- by lane + 1: the sequence that holds its low-water mark
    name            text collate "C" not null check (name ~ '^[A-Za-z0-9_.-]{1,63}$'),
    kind            text not null check (kind in ('request', 'reply', 'error')),
    enqueue_started boolean not null default true,
    dequeue_started boolean not null default true,
    durable         boolean not null default true,
    abort_limit     smallint not null default 5 check (abort_limit between 1 and 1000),
    backoff_ms      integer not null default 100 check (backoff_ms between 0 and 86400000),
    backoff_max_ms  integer not null default 60000 check (backoff_max_ms >= backoff_ms),
    execution_limit_s integer not null default 3600 check (execution_limit_s between 1 and 604800),
    body_bytes_max  integer not null default 1048576 check (body_bytes_max between 1 and 268435456),
    tag_bytes_max   integer not null default 65536 check (tag_bytes_max between 1 and 16777216),
    keep_body       boolean not null default false,
    error_queue_id  integer references onceq.queue,
    created_at      timestamptz not null default clock_timestamp(),
    destroyed_at    timestamptz  -- ids are never reused: history refers to them
);
create unique index queue_name on onceq.queue (name) where destroyed_at is null;

-- The anchor of a registrant: changed by connect, register and disconnect only.
create table onceq.registrant (
    registrant_id  integer generated always as identity primary key,
    name           text collate "C" not null,
    thread         text collate "C" not null default '',
    epoch          bigint not null default 0,
    state          text not null default 'new' check (state in ('new', 'connected', 'disconnected')),
    expires        boolean not null default false,  -- has sent a request that expires
    bell           text,  -- of its clerk's process, in this life: where to ring when a reply has come
    reply_queue_id integer references onceq.queue,
    created_at     timestamptz not null default clock_timestamp(),
    unique (name, thread)
);

-- One row a queue element, for all queues. Lanes: 0..9 fresh, by priority (9 - priority);
-- 10 waiting for not_before (delayed, backing off or returned); 11 suspect; 12 held in an
-- error queue. `turn` orders a lane: it is seq while fresh, and later not_before, in microseconds.
-- It stands in one index only, so that no plan for "the next of a lane" can take another.
create table onceq.element (
    seq            bigint generated always as identity primary key,
    turn           bigint not null default currval('onceq.element_seq_seq'),
    claimed_by     bigint,
    send_no        bigint,
    life           bigint,  -- of a volatile element only: the life of the database it belongs to
    enqueued_at    timestamptz not null,
    not_before     timestamptz,
    expires_at     timestamptz,
    queue_id       integer not null,
    reply_queue_id integer,
    registrant_id  integer,
    failed_of      integer,  -- of what is held: its registrant; its reply has the rid now
    lane           smallint not null,
    priority       smallint not null default 4,
    aborts         smallint not null default 0,
    faults         smallint not null default 0,
    role           onceq.role not null,
    outcome        onceq.outcome,
    eid            uuid not null,
    correlation_id text,
    rid            text collate "C" not null,
    ack_rid        text collate "C",  -- the rid of the reply received last before this send
    content_type   text,
    properties     jsonb,
    code           text,
    error          text,
    sha256         bytea not null,
    body           bytea not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
create index element_ready on onceq.element (queue_id, lane, turn);
create unique index element_eid on onceq.element (eid);
-- A rid is in one place: as a request, or as its reply.
create unique index element_rid on onceq.element (registrant_id, rid);
-- No CHECK and no partial index here: an INSERT would prepare its expression anew each time.

-- The queue manager's record of a registrant's last operation on a queue (BHM90 4.3):
-- appended, the previous row deleted; read by a statement after the anchor lock.
create table onceq.registration (
    registration_id bigint generated always as identity primary key,
    registrant_id   integer not null references onceq.registrant,
    queue_id        integer not null,
    stable          boolean not null default true,
    kind            text check (kind in ('enqueue', 'dequeue')),
    eid             uuid,
    tag             bytea,
    body            bytea,
    rid             text collate "C",  -- of a clerk: the reply received last ...
    send_no         bigint,            -- ... the number of its send ...
    sent_rid        text collate "C",  -- ... and the request sent last when it was written
    sent_no         bigint,
    recorded_at     timestamptz not null default clock_timestamp()
);
create index registration_of on onceq.registration (registrant_id, queue_id, registration_id);

-- One row a finished request. Partitioned by time, so no unique key over (registrant, rid).
create table onceq.history (
    finished_at    timestamptz not null,
    enqueued_at    timestamptz not null,
    send_no        bigint,
    server         bigint,
    queue_id       integer not null,
    registrant_id  integer,
    aborts         smallint not null,
    role           onceq.role not null,
    outcome        onceq.outcome not null,
    eid            uuid not null,
    reply_eid      uuid,
    rid            text collate "C" not null,
    correlation_id text,
    code           text,
    error          text,
    sha256         bytea not null,
    body           bytea,
    reply          bytea
) partition by range (finished_at);
create table onceq.history_default partition of onceq.history default;
create index history_rid on onceq.history (rid, registrant_id);
create index history_eid on onceq.history (eid);

-- What was run again: the failed element, and the new request that stands for it.
create table onceq.redrive (
    old_eid     uuid primary key,
    new_eid     uuid not null,
    new_rid     text collate "C" not null,
    redriven_at timestamptz not null default clock_timestamp()
);

-- One row a slot. The session that uses a slot holds the advisory lock (oid of this table,
-- slot) for as long as it lives; the lock being free is the evidence of its death.
create table onceq.server (
    slot             integer primary key,
    incarnation      bigint not null unique,
    process          uuid not null,
    host             text not null,
    pid              integer not null,
    backend_pid      integer not null,
    postmaster_start timestamptz not null,
    queue_ids        integer[] not null,
    bell             text,  -- of its process: where to ring when it sleeps
    started_at       timestamptz not null default clock_timestamp()
);
-- Never reused: the fence of every claim, of native servers and of Spark's claim groups.
create sequence onceq.incarnation_seq;

-- Elements dequeued in a caller's own transaction: concluded when that transaction commits.
create table onceq.taken (
    seq          bigint not null,
    incarnation  bigint not null,
    reply        bytea,
    content_type text,
    replied      boolean not null default false,
    primary key (seq, incarnation)
);

-- The Spark server of a name: its anchor, changed under its advisory lock (oid of this table,
-- server_id). query_id, batch_id, group_no: the registration tag, the batch committed last.
-- planned: the claim group that Spark was told to read last, which the next commit concludes.
-- last_group: the greatest group given out; a checkpoint that knows of a later one is not ours.
create table onceq.spark_server (
    server_id    integer generated always as identity primary key,
    name         text collate "C" not null unique,
    queue_id     integer not null references onceq.queue,
    epoch        bigint not null default 0,
    query_id     text,
    batch_id     bigint,
    group_no     bigint,
    planned      bigint,
    last_group   bigint not null default 0,
    hold_s       double precision not null default 0,
    ran_alone    boolean not null default false,  -- the last claim was a suspect, alone
    seen_at      timestamptz not null default clock_timestamp(),
    committed_at timestamptz
);

-- A claim group: the elements of one micro-batch, by seq, in the order in which they are read.
-- Its number is their claimed_by, from incarnation_seq. started_under: the start time of the
-- database under which Spark began to run it; null: not begun. held_until: its batch has
-- committed, and what it did not answer is held for later batches until then.
create table onceq.spark_group (
    group_no      bigint primary key,
    server_id     integer not null references onceq.spark_server,
    seqs          bigint[] not null,
    suspect       boolean not null default false,
    faults        smallint not null default 0,
    started_under timestamptz,
    held_until    timestamptz
);
create index spark_group_of on onceq.spark_group (server_id, group_no);

-- What the tasks of a micro-batch hand to its commit. UNLOGGED: a database crash empties the
-- three together, the commit then counts too few rows, and Spark runs the batch again. An
-- attempt's rows become visible with its own row, so that the sweep sees both or neither.
create unlogged table onceq.spark_attempt (
    attempt   bigint primary key,
    server_id integer not null,
    epoch     bigint not null,
    query_id  text not null,
    batch_id  bigint not null,
    staged_at timestamptz not null default clock_timestamp()
);
create unlogged table onceq.spark_reply (
    attempt bigint not null,
    eid     uuid not null,
    reply   bytea,
    error   text,
    reject  boolean
);
create index spark_reply_of on onceq.spark_reply (attempt);
create unlogged table onceq.spark_row (
    attempt  bigint not null,
    table_no smallint not null,
    eid      uuid not null
);
-- A row of a user's table, column by column as text; the commit casts it to that table's types.
do $$ begin
    for n in 1 .. 64 loop
        execute format('alter table onceq.spark_row add column c%s text', n);
    end loop;
end $$;
create index spark_row_of on onceq.spark_row (attempt, table_no);
