-- Operators' functions for clients: list them, forget those that will not return, close their names (finding 3).
-- Tables: registrant, registration, element, history, spent (written). Locks: the client's name (advisory, exclusive in
-- close_client), the registrant's anchor (advisory, exclusive in forget_client), then elements by seq.

-- Every registrant, or those of one name, with a row for each thread. requests: sent and not ended. replies: not
-- acknowledged. waits: a session of it waits for a reply now. sent_at: as far as history tells. received_at: when
-- it last recorded what it had received.
create or replace function onceq.list_clients(p_name text) returns table (
    name text, thread text, state text, epoch bigint, s_rid text, s_state text, r_rid text,
    requests bigint, replies bigint, kept bigint, waits boolean, created_at timestamptz,
    connected_at timestamptz, sent_at timestamptz, received_at timestamptz
)
language sql stable as $$
    select r.name, r.thread, case when r.closed_at is null then r.state else 'closed' end, r.epoch, t.s_rid, t.s_state, t.r_rid, n.requests, n.replies, n.kept,
        exists (select from pg_locks l where l.locktype = 'advisory' and l.mode = 'ShareLock'
            and l.database = (select oid from pg_database where datname = current_database())
            and l.classid = 'onceq.registrant_pkey'::regclass and l.objid = r.registrant_id::bigint::oid),
        r.created_at, r.connected_at,
        coalesce((select e.enqueued_at from onceq.element e where e.registrant_id = r.registrant_id
                and e.rid = t.s_rid and e.role = 'request'),
            (select max(h.enqueued_at) from onceq.history h
                where h.rid = t.s_rid and h.registrant_id = r.registrant_id)),
        (select max(x.recorded_at) from onceq.registration x where x.registrant_id = r.registrant_id
            and x.kind = 'dequeue' and (x.rid is not null or x.eid is not null))
    from onceq.registrant r
    cross join lateral onceq.session_tags(r.registrant_id, r.reply_queue_id) t
    cross join lateral (select count(*) filter (where e.role = 'request') as requests,
            count(*) filter (where e.role = 'reply' and e.lane <> 13 /* kept */) as replies,
            count(*) filter (where e.lane = 13 /* kept */) as kept
        from onceq.element e where e.registrant_id = r.registrant_id) n
    where p_name is null or r.name = p_name collate "C" order by r.name, r.thread
$$;

-- Forgets a client, or one of its threads: what it left is freed, and a tombstone stays, so that none of
-- its rids ever runs twice. Refused while it is connected or has something outstanding, unless forced.
-- Returns a row for each thread; none if there is no such client.
create or replace function onceq.forget_client(
    p_name text, p_thread text, p_forced boolean, p_timeout_s double precision
) returns table (thread text, epoch bigint, s_rid text, r_rid text, cancelled bigint, replies bigint,
    kept bigint, registrations bigint)
language plpgsql volatile as $$
declare
    who onceq.registrant;
    id integer;
begin
    perform onceq.be_durable();
    perform onceq.wait_at_most(p_timeout_s);
    perform onceq.current_life();
    for id in select r.registrant_id from onceq.registrant r
            where r.name = p_name collate "C" and (p_thread is null or r.thread = p_thread collate "C")
            order by r.registrant_id loop
        perform pg_advisory_xact_lock('onceq.registrant'::regclass::oid::integer, id);
        select * into who from onceq.registrant r where r.registrant_id = id;
        perform onceq.may_forget(who) where not p_forced;
        return query select who.thread, f.* from onceq.forget_registrant(who) f;
    end loop;
end $$;

-- Closes a client's name for ever: forgets it, as `forget_client` does, and the rids whose history was trimmed. As nobody
-- can connect by this name again, none of them can run twice. What of history is left goes with a trim.
create or replace function onceq.close_client(p_name text, p_forced boolean, p_timeout_s double precision)
returns table (thread text, epoch bigint, s_rid text, r_rid text, cancelled bigint, replies bigint,
    kept bigint, registrations bigint)
language plpgsql volatile as $$
begin
    perform onceq.wait_at_most(p_timeout_s);
    perform pg_advisory_xact_lock('onceq.registrant_name_thread_key'::regclass::oid::integer, hashtext(p_name));
    return query select * from onceq.forget_client(p_name, null, p_forced, p_timeout_s);
    update onceq.registrant r set closed_at = onceq.now(), has_spent = true
        where r.name = p_name collate "C" and r.closed_at is null;
    delete from onceq.spent s using onceq.registrant r
        where r.registrant_id = s.registrant_id and r.name = p_name collate "C";
end $$;

-- Refuses to forget a client that may still be there, or that has something outstanding.
create or replace function onceq.may_forget(who onceq.registrant) returns void
language plpgsql stable as $$
declare left_over bigint;
begin
    select count(*) into left_over from onceq.element e
        where e.registrant_id = who.registrant_id and e.lane <> 13 /* kept */;
    if who.state = 'connected' or left_over > 0 then
        raise exception 'client "%"% is %, with % request(s) or replies outstanding: it is not forgotten',
            who.name, case when who.thread <> '' then format(', thread "%s",', who.thread) else '' end,
            who.state, left_over using errcode = 'OQ011',
            hint = 'if nobody speaks for it any more, force it: its requests are then cancelled';
    end if;
end $$;

-- Forgets a registrant, whose anchor is locked. Its life is ended, its requests are cancelled, its
-- replies, its checkpoint and its registrations go. What stays is as after a disconnect.
create or replace function onceq.forget_registrant(
    who onceq.registrant, out epoch bigint, out s_rid text, out r_rid text, out cancelled bigint,
    out replies bigint, out kept bigint, out registrations bigint
)
language plpgsql volatile as $$
declare
    last record;
    recorded timestamptz;
    e onceq.element;
begin
    select * into last from onceq.session_tags(who.registrant_id, who.reply_queue_id);
    s_rid := last.s_rid;
    r_rid := last.r_rid;
    cancelled := 0;
    for e in select x.* from onceq.element x where x.registrant_id = who.registrant_id
            and x.role = 'request' order by x.seq for update loop
        if e.claimed_by is not null and onceq.spark_is_in_state(e) then
            raise exception 'request "%" of client "%" is in the state of a Spark query, and cannot be cancelled',
                e.rid, who.name using errcode = 'OQ011', hint = 'try again when it is done';
        end if;
        perform onceq.name_another(e) where e.claimed_by is not null;
        perform onceq.conclude_one(e.seq, null, 'cancelled', p_code => 'forgotten',
            p_error => 'its client was forgotten before it took effect');
        cancelled := cancelled + 1;
    end loop;
    with gone as (delete from onceq.element x where x.registrant_id = who.registrant_id and x.role = 'reply'
            returning x.lane)
        select count(*) filter (where lane <> 13 /* kept */) - cancelled, count(*) filter (where lane = 13 /* kept */)
        into replies, kept from gone;
    with gone as (delete from onceq.registration x where x.registrant_id = who.registrant_id
            returning x.queue_id, x.recorded_at)
        select count(*) filter (where queue_id is distinct from who.reply_queue_id),
            coalesce(max(recorded_at), onceq.now()) into registrations, recorded from gone;
    insert into onceq.registration (registrant_id, queue_id, kind, rid, sent_rid, sent_no, recorded_at)
        select who.registrant_id, who.reply_queue_id, 'dequeue', last.r_rid, last.s_rid, last.s_no, recorded
        where who.reply_queue_id is not null;
    update onceq.registrant r set epoch = r.epoch + 1, state = 'disconnected', bell = null
        where r.registrant_id = who.registrant_id returning r.epoch into epoch;
end $$;
