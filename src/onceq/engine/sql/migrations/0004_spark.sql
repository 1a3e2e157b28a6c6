-- More of what a Spark server's answers say (spec P1, S7).

-- Of an answer with an error: its kind, and whether the environment is to blame.
alter table onceq.spark_reply add column code text, add column retry boolean;

-- When Spark began to run a group, last of all: history has it of what its batch finished.
alter table onceq.spark_group add column begun_at timestamptz;

-- The requests from which rows were computed that are of more than one. UNLOGGED, as all of the stage.
create unlogged table onceq.spark_named (
    attempt bigint not null,
    eid     uuid not null
);
create index spark_named_of on onceq.spark_named (attempt);

-- The query of a stateful server keeps a state of what it has read, in its checkpoint. What it has
-- claimed cannot be killed or taken over.
alter table onceq.spark_server add column stateful boolean not null default false;

-- What a batch of a stateful server has read, from its commit until Spark has noted that it is over:
-- should it come again, it must read the same. place: in the order of its claim group.
create table onceq.spark_consumed (
    server_id      integer not null references onceq.spark_server,
    group_no       bigint not null,
    place          bigint not null,
    eid            uuid not null,
    rid            text not null,
    registrant     text,
    thread         text,
    aborts         smallint not null,
    priority       smallint not null,
    enqueued_at    timestamptz not null,
    correlation_id text,
    content_type   text,
    properties     text,
    body           bytea not null,
    primary key (group_no, place)
);
