-- Reports (spec Q10): a sender may ask to be told what becomes of its element. `onceq_reports` among the properties says
-- where to (`to`) and of what (`on`): a datagram goes there in the transaction of the event, so there is exactly one for
-- each event that committed, and none for another. It carries `onceq_report`, and never asks for reports itself.
-- What could keep a report from going is refused when it is asked for. Later nothing is: it is no send, so a queue that
-- is stopped or full takes it, and one to which reports may come is not destroyed.
-- Tables: element (written), queue, registrant (read). Locks: the queue's of the reports (advisory, shared) where it is asked;
-- none at the event.

-- The queue to which reports are to go, open for enqueue, in the words of whoever asks for them.
create or replace function onceq.open_for_reports(p_name text) returns onceq.queue
language plpgsql volatile as $$
declare q onceq.queue;
begin
    q := onceq.open_queue(p_name, null);
    if q.kind <> 'request' then
        raise exception 'queue "%" is an error queue', p_name using errcode = 'OQ007';
    end if;
    return q;
exception when sqlstate 'OQ003' or sqlstate 'OQ004' or sqlstate 'OQ007' then
    raise exception 'reports cannot go there: %', sqlerrm using errcode = sqlstate,
        hint = 'reports go to a queue of requests that exists and is started for enqueue';
end $$;

-- Checks what was asked for with an element that was enqueued just now, and reports its arrival. Returns null.
create or replace function onceq.report_asked(p_eid uuid) returns text
language plpgsql volatile as $$
declare
    e onceq.element;
    q onceq.queue;
begin
    select * into e from onceq.element where eid = p_eid;
    q := onceq.open_for_reports(e.properties -> 'onceq_reports' ->> 'to');
    if q.queue_id = e.queue_id then
        raise exception 'reports about elements of queue "%" cannot go into it', q.name using errcode = '23514',
            hint = 'give another queue for reports';
    end if;
    return onceq.report(null, e.properties, e.queue_id, e.eid, e.rid, e.registrant_id);
end $$;

-- Reports an event of an element, if its sender has asked for that. p_outcome: how it has ended; null: it has
-- arrived. Returns null.
create or replace function onceq.report(
    p_outcome onceq.outcome, p_properties jsonb, p_queue_id integer, p_eid uuid, p_rid text, p_registrant integer,
    p_code text default null, p_error text default null
) returns text
language plpgsql volatile as $$
declare
    asked jsonb := p_properties -> 'onceq_reports';
    event text := case when p_outcome is null then 'arrival' when p_outcome in ('done', 'dequeued') then 'delivery'
        when p_outcome = 'expired' then 'expiry' else 'exception' end;
    called text := coalesce(p_properties ->> 'onceq_message_id', p_eid::text);
    id uuid := onceq.new_eid();
    content bytea;
    home integer;
begin
    if not asked -> 'on' ? event then
        return null;
    end if;
    content := convert_to(jsonb_build_object('event', event, 'queue', (select name from onceq.queue
            where queue_id = p_queue_id), 'eid', p_eid, 'rid', p_rid, 'message_id', called, 'outcome', p_outcome,
        'code', p_code, 'error', p_error, 'at', onceq.now(), 'client', (select name from onceq.registrant
            where registrant_id = p_registrant), 'thread', (select thread from onceq.registrant
            where registrant_id = p_registrant))::text, 'UTF8');
    insert into onceq.element (queue_id, lane, role, rid, eid, correlation_id, enqueued_at, content_type,
            properties, life, sha256, body)
        select q.queue_id, 5 /* usual */, 'datagram', id::text, id, called, onceq.now(), 'application/json',
            jsonb_build_object('onceq_report', event), case when not q.durable then onceq.current_life() end,
            sha256(content), content
        from onceq.queue q where q.name = asked ->> 'to' collate "C" and q.destroyed_at is null
        returning queue_id into home;
    return onceq.queue_bell(home, false);  -- null: it is notified of, as there is no one here to ring
end $$;

-- Refuses to destroy a queue to which reports may yet come, about elements wherever they are.
create or replace function onceq.refuse_awaited(p_name text) returns void
language plpgsql volatile as $$
declare about uuid := (select eid from onceq.element where properties -> 'onceq_reports' ->> 'to' = p_name limit 1);
begin
    if about is not null then
        raise exception 'queue "%" awaits reports, one about element %', p_name, about using errcode = 'OQ008',
            hint = 'wait until it has ended, or kill it';
    end if;
end $$;
