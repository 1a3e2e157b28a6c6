-- Queues in strict order (spec Q8, ADR 33): one element at a time, the first that was sent first.
-- Tables: begun, element (written), queue (read). Locks: the line's (advisory, oid of begun and the queue), tried and
-- never waited for; then the element, which is never waited for either.
--
-- `begun` is a hint, the element's row is the truth: finish, abort, kill, expiry, takeover do not touch it. It is read
-- and written under the line's lock, by statements that begin after the lock was got, so they see what its last
-- holder committed. It is needed as an element that was sent earlier may be committed later than the one that began.

-- Claims the next element of a strict queue, unless one has begun and has not ended: that one comes again first, and
-- while it is claimed, waits for its time or is held, nothing else does. p_low: where the sent ones begin.
create or replace function onceq.claim_in_order(
    p_incarnation bigint, p_queue_id integer, p_low bigint, p_alone boolean
) returns setof onceq.element
language plpgsql volatile as $$
declare
    first bigint;
    e onceq.element;
begin
    -- an older snapshot would not see what the lock's last holder did
    if current_setting('transaction_isolation') <> 'read committed'
            or not pg_try_advisory_xact_lock('onceq.begun'::regclass::oid::integer, p_queue_id) then
        return;
    end if;
    for try in 1 .. 1000 loop  -- what has expired must not hide what has not
        delete from onceq.begun d where d.queue_id = p_queue_id and not exists (select from onceq.element x
            where x.seq = d.seq and x.queue_id = p_queue_id and x.role in ('request', 'datagram'));
        select min(d.seq) into first from onceq.begun d where d.queue_id = p_queue_id;
        if first is null then
            select x.seq into first from onceq.element x where x.queue_id = p_queue_id and x.lane = 10 /* due */
                order by x.turn limit 1;  -- one that was redriven
        end if;
        if first is null then
            select x.seq into first from onceq.element x
                where x.queue_id = p_queue_id and x.lane = 5 /* usual */ and x.turn >= p_low
                order by x.turn limit 1;
        end if;
        exit when first is null;
        select x.* into e from onceq.element x where x.seq = first for update skip locked;
        exit when e.seq is null or e.claimed_by is not null or e.lane > 11 /* suspect */
            or (e.lane >= 10 /* due */ and e.turn > onceq.turn_at(onceq.now()))
            or (e.lane = 11 /* suspect */
                and not (p_alone and onceq.may_claim_suspect(p_incarnation, p_queue_id)));
        perform onceq.be_durable() where e.lane >= 10 /* due */;
        update onceq.element x set claimed_by = p_incarnation where x.seq = first returning x.* into e;
        if (e.life is null and e.expires_at is null) or not onceq.dismiss(e) then
            insert into onceq.begun (queue_id, ring, seq) values (p_queue_id, 0, first) on conflict do nothing;
            return next e;
            exit;
        end if;
    end loop;
end $$;

-- Whether the element of a strict queue that has begun keeps all others from being claimed, and cannot be claimed
-- itself now: it runs, waits for its time, is held, or is a suspect that may not run. False if none has begun.
create or replace function onceq.is_held_up(p_queue_id integer) returns boolean
language plpgsql volatile as $$
declare e onceq.element;
begin
    select x.* into e from onceq.begun d join onceq.element x on x.seq = d.seq
        where d.queue_id = p_queue_id and x.queue_id = p_queue_id and x.role in ('request', 'datagram')
        order by d.seq limit 1;
    return e.seq is not null and (e.claimed_by is not null or e.lane > 11 /* suspect */
        or (e.lane >= 10 /* due */ and e.turn > onceq.turn_at(onceq.now()))
        or (e.lane = 11 /* suspect */ and not onceq.may_claim_suspect(0, p_queue_id)));
end $$;

-- Refuses what would break the order of a strict queue.
create or replace function onceq.refuse_in_order(p_queue_id integer, p_what text) returns void
language plpgsql stable as $$
declare its_name text := (select q.name from onceq.queue q where q.queue_id = p_queue_id and q.ordered);
begin
    if its_name is not null then
        raise exception 'queue "%" is in strict order, and %', its_name, p_what using errcode = '23514',
            hint = 'what need not be in order goes to another queue';
    end if;
end $$;

-- Refuses an element that was enqueued just now, with a delay, if its queue is strict.
create or replace function onceq.refuse_delay(p_eid uuid) returns void
language sql volatile as $$
    select onceq.refuse_in_order(e.queue_id, 'delays nothing') from onceq.element e where e.eid = p_eid
$$;
