-- Periodic requests: make, change, pause, remove, list, tick (ADR 39).
-- Tables: periodic (written), element, queue (read), and those of `enqueue`. Locks: the queue's (advisory, shared), then the
-- row of periodic; in a tick also those of `enqueue`, in its order.
--
-- Whoever looks after a repository asks whether a tick is due, computes in Python which it is and which comes next, and
-- performs `tick`: it moves next_at if it still is the one that was computed for, and enqueues, in one transaction. So
-- each tick is enqueued once, however many look. next_at only grows: a clock that is set back repeats nothing.

-- Whether a periodic request's last one is not done: it is in a queue, and has not failed.
create or replace function onceq.is_under_way(p_eid uuid) returns boolean
language sql stable as $$
    select exists (select from onceq.element e where e.eid = p_eid and e.role <> 'failed')
$$;

-- Whether a tick is due that can be tried now: what each look asks, by a small index.
create or replace function onceq.is_tick_due() returns boolean
language sql volatile as $$
    select exists (select from onceq.periodic p where not p.paused and p.look_at <= onceq.now()
        and (p.overlap or not onceq.is_under_way(p.eid)))
$$;

-- What is due, the longest waiting first; now: the time by which that is so.
create or replace function onceq.due_ticks() returns table (
    name text, revision uuid, schedule text, zone text, missed text, next_at timestamptz, now timestamptz
)
language sql volatile as $$
    select p.name, p.revision, p.schedule, p.zone, p.missed, p.next_at, t.now
        from (select onceq.now() as now) t, onceq.periodic p
        where not p.paused and p.look_at <= t.now and (p.overlap or not onceq.is_under_way(p.eid))
        order by p.look_at, p.name limit 1000
$$;

-- Ticks. If this periodic request still is of this revision, and this tick is next: moves on to p_to, and enqueues the
-- request of p_tick_at; null: nothing is sent. state: 'sent' or 'skipped'; 'gone': it was not so any more, or is not due
-- by the database's clock; 'under way': the last one is not done; 'refused': the queue did not take it, for the reason in
-- `error`; it is tried again in a second. is_news: it was not refused for that already.
create or replace function onceq.tick(
    p_name text, p_revision uuid, p_next_at timestamptz, p_tick_at timestamptz, p_to timestamptz,
    out state text, out error text, out is_news boolean
)
language plpgsql volatile as $$
declare
    p onceq.periodic;
    id uuid;
begin
    perform onceq.be_durable();
    perform pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(x.queue))
        from onceq.periodic x where x.name = p_name;
    select * into p from onceq.periodic x where x.name = p_name and x.revision = p_revision
        and x.next_at = p_next_at and not x.paused for update skip locked;  -- locked: another one ticks
    if p.name is null or p_next_at > onceq.now() or p_tick_at > onceq.now() then
        state := 'gone';
    elsif not p.overlap and onceq.is_under_way(p.eid) then
        state := 'under way';
    elsif p_tick_at is null then
        state := 'skipped';
    else
        select x.eid, x.error into id, error from onceq.enqueue_tick(p, p_tick_at) x;
        state := case when id is null then 'refused' else 'sent' end;
    end if;
    update onceq.periodic x set next_at = p_to, look_at = p_to, error = null,
            ticked_at = coalesce(p_tick_at, x.ticked_at), eid = coalesce(id, x.eid)
        where x.name = p.name and state in ('sent', 'skipped');
    is_news := state = 'refused' and onceq.hold_tick(p_name, p_revision, p_next_at, tick.error, 1);
end $$;

-- Enqueues the request of a tick, unless its queue refuses: then error says why. Anything else is raised.
create or replace function onceq.enqueue_tick(
    p onceq.periodic, p_tick_at timestamptz, out eid uuid, out error text
)
language plpgsql volatile as $$
declare rid text := p.name || '@' || to_char(p_tick_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
begin
    select x.eid into eid from onceq.enqueue(p.queue, p.body, rid, 4::smallint, null, null, null, p.content_type,
        null, false) x;
exception
    when sqlstate 'OQ003' or sqlstate 'OQ004' or sqlstate 'OQ005' or sqlstate 'OQ007' or sqlstate 'OQ017' then
        get stacked diagnostics error = message_text;
end $$;

-- Leaves a tick where it is, and notes why; it is tried again in so many seconds. Returns whether that is news.
create or replace function onceq.hold_tick(
    p_name text, p_revision uuid, p_next_at timestamptz, p_error text, p_after_s double precision
) returns boolean
language plpgsql volatile as $$
declare before text;
begin
    select error into before from onceq.periodic where name = p_name;
    update onceq.periodic set error = p_error, look_at = onceq.now() + p_after_s * interval '1 second'
        where name = p_name and revision = p_revision and next_at = p_next_at;
    return found and before is distinct from p_error;
end $$;

-- Locks the queue of a periodic request, shared, and refuses one that can never take it.
create or replace function onceq.open_for_ticks(p_queue text, p_body bytea) returns void
language plpgsql volatile as $$
declare q onceq.queue;
begin
    perform pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_queue));
    q := onceq.find_queue(p_queue);
    if q.kind <> 'request' then
        raise exception 'queue "%" is of kind "%": a periodic request needs a queue of requests', p_queue, q.kind
            using errcode = 'OQ007', hint = 'name a queue that servers serve';
    elsif octet_length(p_body) > q.body_bytes_max then
        raise exception 'the body has % bytes; queue "%" takes at most %',
            octet_length(p_body), p_queue, q.body_bytes_max using errcode = 'OQ005';
    end if;
end $$;

-- Makes a periodic request; false: there is one of this name.
create or replace function onceq.create_periodic(
    p_name text, p_queue text, p_body bytea, p_content_type text, p_schedule text, p_zone text, p_missed text,
    p_overlap boolean, p_next_at timestamptz
) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.be_durable(), onceq.open_for_ticks(p_queue, p_body);
    insert into onceq.periodic (name, queue, body, content_type, schedule, zone, missed, overlap, next_at, look_at,
            created_at)
        values (p_name, p_queue, p_body, p_content_type, p_schedule, p_zone, p_missed, p_overlap, p_next_at, p_next_at,
            onceq.now())
        on conflict do nothing;
    return found;
end $$;

-- Changes all of a periodic request, from p_next_at on; false: there is none of this name, or its revision is another, or
-- p_next_at was sent meanwhile.
create or replace function onceq.alter_periodic(
    p_name text, p_queue text, p_body bytea, p_content_type text, p_schedule text, p_zone text, p_missed text,
    p_overlap boolean, p_next_at timestamptz, p_revision uuid
) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.be_durable(), onceq.open_for_ticks(p_queue, p_body);
    update onceq.periodic set queue = p_queue, body = p_body, content_type = p_content_type, schedule = p_schedule,
            zone = p_zone, missed = p_missed, overlap = p_overlap, next_at = p_next_at, look_at = p_next_at, error = null,
            revision = gen_random_uuid()
        where name = p_name and revision = p_revision and (ticked_at is null or ticked_at < p_next_at);
    return found;
end $$;

-- Pauses a periodic request, or resumes it from p_next_at on; false as in alter_periodic.
create or replace function onceq.pause_periodic(
    p_name text, p_revision uuid, p_paused boolean, p_next_at timestamptz
) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.be_durable();
    update onceq.periodic set paused = p_paused, next_at = p_next_at, look_at = p_next_at, error = null,
            revision = gen_random_uuid()
        where name = p_name and revision = p_revision and (ticked_at is null or ticked_at < p_next_at);
    return found;
end $$;

-- Removes a periodic request; what it has sent stays. Returns whether there was one.
create or replace function onceq.remove_periodic(p_name text) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.be_durable();
    delete from onceq.periodic where name = p_name;
    return found;
end $$;

-- Every periodic request, by name, or the one of this name. lag_s: how late its next tick is; 0 if it is paused.
create or replace function onceq.list_periodics(p_name text) returns table (
    name text, revision uuid, queue text, body bytea, content_type text, schedule text, zone text, missed text,
    overlap boolean, is_paused boolean, next_at timestamptz, ticked_at timestamptz, eid uuid, is_under_way boolean,
    error text, lag_s double precision, created_at timestamptz
)
language sql volatile as $$
    select p.name, p.revision, p.queue, p.body, p.content_type, p.schedule, p.zone, p.missed, p.overlap, p.paused,
            p.next_at, p.ticked_at, p.eid, onceq.is_under_way(p.eid), p.error,
            case when p.paused then 0 else greatest(0, extract(epoch from onceq.now() - p.next_at))::double precision end,
            p.created_at
        from onceq.periodic p where p_name is null or p.name = p_name order by p.name
$$;
