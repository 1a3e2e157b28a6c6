-- Queues: create, alter, destroy, start and stop (spec Q1).
-- Tables: queue, begun, limits, retention, breaker (written), element, registrant, server, periodic, terms (read). Locks: one for the list of queues (advisory, oid of
-- queue and 0), then the queue's (advisory), exclusive.

create or replace function onceq.create_queue(
    p_name text, p_durable boolean, p_abort_limit integer, p_backoff_ms integer,
    p_backoff_max_ms integer, p_execution_limit_s integer, p_body_bytes_max integer,
    p_tag_bytes_max integer, p_keep_body boolean, p_error_queue text, p_retry_limit integer
) returns boolean
language plpgsql volatile as $$
declare
    error_name text := coalesce(p_error_queue, p_name || '.error');
    error_id integer;
begin
    perform onceq.refuse_reply_name(p_name), onceq.refuse_reply_name(error_name);
    perform pg_advisory_xact_lock('onceq.queue'::regclass::oid::integer, 0);
    if exists (select from onceq.queue where name = p_name collate "C" and destroyed_at is null) then
        return false;
    end if;
    error_id := onceq.error_queue_named(error_name);
    insert into onceq.queue (name, kind, durable, abort_limit, backoff_ms, backoff_max_ms,
            execution_limit_s, body_bytes_max, tag_bytes_max, keep_body, error_queue_id, retry_limit)
        values (p_name, 'request', p_durable, p_abort_limit, p_backoff_ms, p_backoff_max_ms,
            p_execution_limit_s, p_body_bytes_max, p_tag_bytes_max, p_keep_body, error_id, p_retry_limit);
    perform onceq.ring_each('{0}'::integer[] || array(  -- servers of this name that found no queue, or the former one
        select queue_id from onceq.queue where name = p_name collate "C" and destroyed_at is not null));
    return true;
end $$;

-- The same, in an order: 'strict', or null.
create or replace function onceq.create_queue(
    p_name text, p_durable boolean, p_abort_limit integer, p_backoff_ms integer,
    p_backoff_max_ms integer, p_execution_limit_s integer, p_body_bytes_max integer,
    p_tag_bytes_max integer, p_keep_body boolean, p_error_queue text, p_retry_limit integer, p_order text
) returns boolean
language plpgsql volatile as $$
begin
    if not onceq.create_queue(p_name, p_durable, p_abort_limit, p_backoff_ms, p_backoff_max_ms, p_execution_limit_s,
            p_body_bytes_max, p_tag_bytes_max, p_keep_body, p_error_queue, p_retry_limit) then
        return false;
    end if;
    update onceq.queue set ordered = true where name = p_name collate "C" and destroyed_at is null and p_order = 'strict';
    return true;
end $$;

-- The same, with limits; null: none.
create or replace function onceq.create_queue(
    p_name text, p_durable boolean, p_abort_limit integer, p_backoff_ms integer,
    p_backoff_max_ms integer, p_execution_limit_s integer, p_body_bytes_max integer,
    p_tag_bytes_max integer, p_keep_body boolean, p_error_queue text, p_retry_limit integer, p_order text,
    p_depth bigint, p_bytes bigint
) returns boolean
language plpgsql volatile as $$
begin
    if not onceq.create_queue(p_name, p_durable, p_abort_limit, p_backoff_ms, p_backoff_max_ms, p_execution_limit_s,
            p_body_bytes_max, p_tag_bytes_max, p_keep_body, p_error_queue, p_retry_limit, p_order) then
        return false;
    end if;
    perform onceq.limit_queue((onceq.find_queue(p_name)).queue_id, p_depth, p_bytes)
        where coalesce(p_depth, p_bytes) is not null;
    return true;
end $$;

-- The same, and what becomes of what fails: 'fail' or 'hold'.
create or replace function onceq.create_queue(
    p_name text, p_durable boolean, p_abort_limit integer, p_backoff_ms integer,
    p_backoff_max_ms integer, p_execution_limit_s integer, p_body_bytes_max integer,
    p_tag_bytes_max integer, p_keep_body boolean, p_error_queue text, p_retry_limit integer, p_order text,
    p_depth bigint, p_bytes bigint, p_on_failure text
) returns boolean
language plpgsql volatile as $$
begin
    if not onceq.create_queue(p_name, p_durable, p_abort_limit, p_backoff_ms, p_backoff_max_ms, p_execution_limit_s,
            p_body_bytes_max, p_tag_bytes_max, p_keep_body, p_error_queue, p_retry_limit, p_order, p_depth, p_bytes) then
        return false;
    end if;
    update onceq.queue set holds = true where name = p_name collate "C" and destroyed_at is null and p_on_failure = 'hold';
    return true;
end $$;

-- Changes the given settings; null leaves a setting as it is.
create or replace function onceq.alter_queue(
    p_name text, p_abort_limit integer, p_backoff_ms integer, p_backoff_max_ms integer,
    p_execution_limit_s integer, p_body_bytes_max integer, p_tag_bytes_max integer,
    p_keep_body boolean, p_enqueue_started boolean, p_dequeue_started boolean, p_retry_limit integer
) returns boolean
language plpgsql volatile as $$
declare q onceq.queue := onceq.find_queue(p_name);
begin
    update onceq.queue set
        abort_limit = coalesce(p_abort_limit, abort_limit),
        retry_limit = coalesce(p_retry_limit, retry_limit),
        backoff_ms = coalesce(p_backoff_ms, backoff_ms),
        backoff_max_ms = coalesce(p_backoff_max_ms, backoff_max_ms),
        execution_limit_s = coalesce(p_execution_limit_s, execution_limit_s),
        body_bytes_max = coalesce(p_body_bytes_max, body_bytes_max),
        tag_bytes_max = coalesce(p_tag_bytes_max, tag_bytes_max),
        keep_body = coalesce(p_keep_body, keep_body),
        enqueue_started = coalesce(p_enqueue_started, enqueue_started),
        dequeue_started = coalesce(p_dequeue_started, dequeue_started)
        where queue_id = q.queue_id;
    perform onceq.reset_breaker(q.queue_id) where p_dequeue_started;
    perform onceq.queue_bell(q.queue_id, false)
        where p_dequeue_started and not (q.dequeue_started and q.paused_until is null);
    return true;
end $$;

-- The same, and both limits, if p_limits; null: none.
create or replace function onceq.alter_queue(
    p_name text, p_abort_limit integer, p_backoff_ms integer, p_backoff_max_ms integer,
    p_execution_limit_s integer, p_body_bytes_max integer, p_tag_bytes_max integer,
    p_keep_body boolean, p_enqueue_started boolean, p_dequeue_started boolean, p_retry_limit integer,
    p_limits boolean, p_depth bigint, p_bytes bigint
) returns boolean
language plpgsql volatile as $$
begin
    perform onceq.limit_queue((onceq.find_queue(p_name)).queue_id, p_depth, p_bytes) where p_limits;
    return onceq.alter_queue(p_name, p_abort_limit, p_backoff_ms, p_backoff_max_ms, p_execution_limit_s,
        p_body_bytes_max, p_tag_bytes_max, p_keep_body, p_enqueue_started, p_dequeue_started, p_retry_limit);
end $$;

-- The same, and what becomes of what fails from now on: 'fail' or 'hold'; null leaves it.
create or replace function onceq.alter_queue(
    p_name text, p_abort_limit integer, p_backoff_ms integer, p_backoff_max_ms integer,
    p_execution_limit_s integer, p_body_bytes_max integer, p_tag_bytes_max integer,
    p_keep_body boolean, p_enqueue_started boolean, p_dequeue_started boolean, p_retry_limit integer,
    p_limits boolean, p_depth bigint, p_bytes bigint, p_on_failure text
) returns boolean
language plpgsql volatile as $$
begin
    update onceq.queue set holds = (p_on_failure = 'hold')
        where queue_id = (onceq.find_queue(p_name)).queue_id and p_on_failure is not null;
    return onceq.alter_queue(p_name, p_abort_limit, p_backoff_ms, p_backoff_max_ms, p_execution_limit_s, p_body_bytes_max,
        p_tag_bytes_max, p_keep_body, p_enqueue_started, p_dequeue_started, p_retry_limit, p_limits, p_depth, p_bytes);
end $$;

-- Destroys an empty queue; its error queue goes with it if that is empty and serves no other queue.
-- Its lock, exclusive, waits for the senders that hold it shared, and delays those that come
-- later: for 10 s at most, as a caller's transaction may stay open. The lock of create_queue is taken,
-- too: the error queue must not get another user meanwhile.
create or replace function onceq.destroy_queue(p_name text) returns boolean
language plpgsql volatile as $$
declare q onceq.queue := onceq.find_queue(p_name);
begin
    perform onceq.wait_at_most(10);
    perform pg_advisory_xact_lock('onceq.queue'::regclass::oid::integer, 0);
    perform pg_advisory_xact_lock('onceq.queue'::regclass::oid::integer, hashtext(p_name));
    perform onceq.refuse_awaited(p_name);  -- before the look into the queue, where the report then is
    if exists (select from onceq.element where queue_id = q.queue_id) then
        raise exception 'queue "%" is not empty', p_name using errcode = 'OQ008';
    end if;
    if exists (select from onceq.registrant where reply_queue_id = q.queue_id) then
        raise exception 'queue "%" is the private reply queue of a registrant', p_name
            using errcode = 'OQ008';
    end if;
    if exists (select from onceq.periodic where queue = p_name) then
        raise exception 'queue "%" is that of a periodic request', p_name
            using errcode = 'OQ008', hint = 'remove that first, or give it another queue';
    end if;
    if exists (select from onceq.queue where error_queue_id = q.queue_id and destroyed_at is null) then
        raise exception 'queue "%" is the error queue of another', p_name using errcode = 'OQ008';
    end if;
    if exists (select from onceq.terms where error_queue_id = q.queue_id) then
        raise exception 'queue "%" is the error queue of somebody who dequeues', p_name
            using errcode = 'OQ008', hint = 'stop the server that names it, or the transaction, first';
    end if;
    delete from onceq.begun where queue_id = q.queue_id;
    delete from onceq.limits where queue_id = q.queue_id;
    delete from onceq.retention where queue_id = q.queue_id;
    delete from onceq.breaker where queue_id = q.queue_id;
    update onceq.queue set destroyed_at = onceq.now(), lanes = '{}' where queue_id = q.queue_id;
    perform onceq.drop_marks();
    update onceq.queue e set destroyed_at = onceq.now()
        where e.queue_id = q.error_queue_id and e.kind = 'error' and e.destroyed_at is null
        and not exists (select from onceq.element where queue_id = e.queue_id)
        and not exists (select from onceq.terms where error_queue_id = e.queue_id)
        and not exists (select from onceq.queue o
                        where o.error_queue_id = e.queue_id and o.destroyed_at is null);
    return true;
end $$;
