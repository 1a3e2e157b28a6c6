-- Persistent streams beside queues (spec M38): how far a receiver's effects are, and what a relay sends next.

-- The position of one name in the stream of a topic and session: everything below `number` has taken effect, in
-- the transaction that moved it here. life: the fence of those that move it; the newest wins. stream: null:
-- nothing was taken yet. epoch: one of the stream's that is not older than that of the message before `number`.
-- Ids of streams and sessions have 64 bits without a sign, and are in hex.
create table onceq.stream_position (
    name     text collate "C" not null,
    topic    text collate "C" not null,
    session  text collate "C" not null,
    life     bigint not null default 0,
    stream   text collate "C",
    epoch    bigint not null default 0,
    number   bigint not null default 0,
    moved_at timestamptz,
    primary key (name, topic, session)
);

-- A relay from a queue to a stream. claim: the claimed_by of what it has planned, from incarnation_seq.
-- epoch: of the stream, with which its present life began: the fence of plans. next: the number of what is
-- planned next; below it, what is not in stream_plan has ended.
create table onceq.stream_relay (
    name     text collate "C" primary key,
    queue_id integer not null references onceq.queue,
    topic    text collate "C" not null,
    session  text collate "C" not null,
    claim    bigint not null unique,
    stream   text collate "C",
    epoch    bigint not null default 0,
    next     bigint not null default 0
);

-- The numbers that elements have, or will have, in the stream.
create table onceq.stream_plan (
    name   text collate "C" not null references onceq.stream_relay,
    number bigint not null,
    seq    bigint not null,
    primary key (name, number)
);
