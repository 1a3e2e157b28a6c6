-- Terms: the abort limit and the error queue by which an incarnation dequeues, in place of its queue's (spec Q4, ADR 41).
-- Tables: terms, queue (written), element, server (read). Locks: the list of queues, where an error queue is to be made,
-- and the error queue's (advisory, shared), so that nobody destroys it meanwhile.
--
-- Only `return_element` reads them (`queue_for`): no send, claim or finish knows of them. Whoever serves a queue sets them before its
-- first claim, for all of the queue. Whoever dequeues in a caller's transaction sets them for the one element that it has
-- claimed, before it is taken: until then it would come back uncharged. They go with the row of the incarnation.

-- Refuses a name that is kept for clients' own reply queues.
create or replace function onceq.refuse_reply_name(p_name text) returns void
language plpgsql immutable as $$
begin
    if p_name ~ '^reply-[0-9]+(\.error)?$' then
        raise exception 'queue names "reply-N" are those of clients'' own reply queues'
            using errcode = '23514', hint = 'choose another name';
    end if;
end $$;

-- The error queue of this name, which is made if there is no queue of this name.
create or replace function onceq.error_queue_named(p_name text) returns integer
language plpgsql volatile as $$
declare id integer;
begin
    perform onceq.refuse_reply_name(p_name);
    select queue_id into id from onceq.queue where name = p_name collate "C" and destroyed_at is null;
    if id is null then
        insert into onceq.queue (name, kind) values (p_name, 'error') returning queue_id into id;
    end if;
    return id;
end $$;

-- Sets the terms on which an incarnation claims from a queue: all that it claims, or the element p_seq that it has
-- claimed. Null: as the queue says. Returns whether the incarnation is there.
create or replace function onceq.set_terms(
    p_incarnation bigint, p_queue_id integer, p_seq bigint, p_abort_limit integer, p_error_queue text
) returns boolean
language plpgsql volatile as $$
declare error_id integer;
begin
    if p_error_queue is not null then
        perform pg_advisory_xact_lock('onceq.queue'::regclass::oid::integer, 0) where not exists (
            select from onceq.queue q where q.name = p_error_queue collate "C" and q.destroyed_at is null);
        perform pg_advisory_xact_lock_shared('onceq.queue'::regclass::oid::integer, hashtext(p_error_queue));
        error_id := onceq.error_queue_named(p_error_queue);
    end if;
    delete from onceq.terms t where t.incarnation = p_incarnation and t.seq > 0 and not exists (
        select from onceq.element e where e.seq = t.seq and e.claimed_by = p_incarnation);
    insert into onceq.terms (incarnation, queue_id, seq, abort_limit, error_queue_id)
        select s.incarnation, p_queue_id, coalesce(p_seq, 0), p_abort_limit, error_id
        from onceq.server s where s.incarnation = p_incarnation
        on conflict (incarnation, queue_id, seq)
        do update set abort_limit = excluded.abort_limit, error_queue_id = excluded.error_queue_id;
    return found;
end $$;

-- The queue of an element as it is for the incarnation that has claimed it: on its terms, if it has some. Those of the
-- one element end here, as it comes back: the same incarnation may claim it again on others, or on none.
create or replace function onceq.queue_for(e onceq.element, p_incarnation bigint) returns onceq.queue
language plpgsql volatile as $$
declare
    q onceq.queue;
    t onceq.terms;
begin
    select * into q from onceq.queue where queue_id = e.queue_id;
    delete from onceq.terms where incarnation = p_incarnation and queue_id = e.queue_id and seq = e.seq
        returning * into t;
    if t.seq is null then
        select * into t from onceq.terms where incarnation = p_incarnation and queue_id = e.queue_id and seq = 0;
    end if;
    q.abort_limit := coalesce(t.abort_limit, q.abort_limit);
    q.error_queue_id := coalesce(t.error_queue_id, q.error_queue_id);
    return q;
end $$;
