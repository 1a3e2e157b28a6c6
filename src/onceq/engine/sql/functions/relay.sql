-- The sending bridge: datagrams of a queue become messages of a stream, each once (spec M38).
-- Tables: stream_relay, stream_plan, element, history (written), queue (read). Locks: the relay's row, which is the
-- fence, then elements by seq. A kill that has an element is passed over; it never waits for a relay's row.
--
-- A number is planned for an element before anything is sent, in the transaction that claims the element. So a later
-- life knows of each number in the stream whose it is. What the stream has as planned is finished; what it has not, or
-- as void, is planned again, under another number. A plan belongs to the epoch with which its life began: the
-- stores have fenced all former lives when the next one says so here.

-- Returns where a relay is, which is made if it is new. Its queue and stream stay the same.
create or replace function onceq.relay_open(
    p_name text, p_queue text, p_topic text, p_session text,
    out stream text, out epoch bigint, out next bigint, out lowest bigint
)
language plpgsql volatile as $$
declare
    q onceq.queue := onceq.find_queue(p_queue);
    r onceq.stream_relay;
begin
    if q.kind = 'reply' then
        raise exception 'queue "%" is of the replies to a client: they are not relayed', p_queue
            using errcode = 'OQ007';
    elsif not q.durable then
        raise exception 'queue "%" is volatile: a crash would take what is planned', p_queue
            using errcode = 'OQ007', hint = 'relay from a durable queue';
    end if;
    perform onceq.be_durable();
    perform onceq.refuse_in_order(q.queue_id, 'a relay takes many at a time');
    insert into onceq.stream_relay (name, queue_id, topic, session, claim)
        select p_name, q.queue_id, p_topic, p_session, nextval('onceq.incarnation_seq')
        where not exists (select from onceq.stream_relay x where x.name = p_name) on conflict do nothing;
    select * into r from onceq.stream_relay x where x.name = p_name for update;
    if (r.queue_id, r.topic, r.session) is distinct from (q.queue_id, p_topic, p_session) then
        raise exception 'relay "%" is of another queue, topic or session', p_name using errcode = 'OQ007',
            hint = 'give this one another name';
    end if;
    stream := r.stream; epoch := r.epoch; next := r.next;
    lowest := coalesce((select min(number) from onceq.stream_plan where name = p_name), r.next);
end $$;

-- What is planned, in the order of its numbers.
create or replace function onceq.relay_planned(p_name text) returns table (number bigint, body bytea)
language plpgsql volatile set enable_seqscan = off as $$
begin
    perform from onceq.stream_relay where name = p_name for update;  -- waits for a ghost that plans
    return query select p.number, e.body from onceq.stream_plan p
        cross join lateral (select * from onceq.element x where x.seq = p.seq offset 0) e
        where p.name = p_name order by p.number;
end $$;

-- Locks a relay's row, and refuses a life that is over.
create or replace function onceq.relay_lock(p_name text, p_epoch bigint) returns onceq.stream_relay
language plpgsql volatile as $$
declare r onceq.stream_relay;
begin
    select * into r from onceq.stream_relay where name = p_name for update;
    if r.epoch is distinct from p_epoch then
        perform onceq.relay_fenced(p_name, r.epoch, p_epoch);
    end if;
    return r;
end $$;

-- Says that a later life of a relay has taken over.
create or replace function onceq.relay_fenced(p_name text, p_current bigint, p_epoch bigint) returns void
language plpgsql volatile as $$
begin
    raise exception 'a later life of relay "%" has taken over (epoch %; this one is %): nothing happened',
        p_name, p_current, p_epoch using errcode = 'OQ001', hint = 'end this one';
end $$;

-- Begins a life, in an epoch of its source, and fences the former ones. p_end: where the log ended that the epoch
-- goes on with. p_there: the planned numbers below it that the stream has as planned: they are finished. The rest will
-- never be stable as planned; it is given back, and planned again. Returns how many are finished.
create or replace function onceq.relay_begin(
    p_name text, p_stream text, p_epoch bigint, p_end bigint, p_there bigint[]
) returns bigint
language plpgsql volatile as $$
declare
    r onceq.stream_relay;
    finished bigint;
begin
    perform onceq.be_durable();
    select * into r from onceq.stream_relay where name = p_name for update;
    if r.epoch >= p_epoch then
        perform onceq.relay_fenced(p_name, r.epoch, p_epoch);
    elsif r.stream <> p_stream or p_end < coalesce(
            (select min(number) from onceq.stream_plan where name = p_name), r.next) then
        raise exception 'the stream of relay "%" was replaced, or has lost what was finished', p_name
            using errcode = 'OQ007';
    end if;
    finished := onceq.relay_conclude(r, p_there);
    perform onceq.relay_give_back(r, array(select number from onceq.stream_plan where name = p_name));
    update onceq.stream_relay set stream = p_stream, epoch = p_epoch, next = p_end where name = p_name;
    return finished;
end $$;

-- Ends what is planned under these numbers: it is in the stream. The caller has locked the relay's row.
create or replace function onceq.relay_conclude(r onceq.stream_relay, p_numbers bigint[]) returns bigint
language plpgsql volatile set enable_seqscan = off as $$
declare seqs bigint[];
begin
    with ended as (delete from onceq.stream_plan where name = r.name and number = any (p_numbers) returning seq)
        select coalesce(array_agg(seq order by seq), '{}') into seqs from ended;
    perform onceq.conclude_batch(seqs, r.claim, array_fill(null::bytea, array[cardinality(seqs)]), null)
        where seqs <> '{}';
    return cardinality(seqs);
end $$;

-- Gives back what is planned under these numbers, uncharged, in their order.
create or replace function onceq.relay_give_back(r onceq.stream_relay, p_numbers bigint[]) returns void
language plpgsql volatile set enable_seqscan = off as $$
declare
    x record;
    e onceq.element;
begin
    for x in select number, seq from onceq.stream_plan where name = r.name and number = any (p_numbers)
            order by number loop
        delete from onceq.stream_plan where name = r.name and number = x.number;
        select * into e from onceq.element where seq = x.seq and claimed_by = r.claim for update;
        perform onceq.return_element(e, 'release', null, null, null);
    end loop;
end $$;

-- Claims up to p_n datagrams of the queue, in its order, and plans numbers for them from p_next on: a compare-and-set of
-- stream, epoch and next number. What came back goes first. A body over p_bytes_max fits no message, and fails.
create or replace function onceq.relay_plan(
    p_name text, p_stream text, p_epoch bigint, p_next bigint, p_n integer, p_bytes_max integer
) returns table (number bigint, body bytea)
language plpgsql volatile as $$
declare
    r onceq.stream_relay := onceq.relay_lock(p_name, p_epoch);
    e onceq.element;
    picked bigint[];
begin
    if (r.stream, r.next) is distinct from (p_stream, p_next) then
        raise exception 'relay "%" plans % next, and not %: nothing happened', p_name, r.next, p_next
            using errcode = 'OQ001', hint = 'end this one: another one of this name plans';
    end if;
    perform onceq.be_durable();
    for again in 1 .. 1000 loop  -- what fits no message, or has expired, must not hide what does
        picked := onceq.relay_pick(r.queue_id, p_n);
        exit when picked = '{}';
        for e in select * from onceq.element where seq = any (picked) and octet_length(element.body) > p_bytes_max loop
            picked := array_remove(picked, e.seq);
            perform onceq.return_element(e, 'reject', 'TooLarge',
                format('the body has %s bytes; a message has at most %s', octet_length(e.body), p_bytes_max), null);
        end loop;
        picked := onceq.spark_sound(picked);
        exit when picked <> '{}';
    end loop;
    update onceq.element set claimed_by = r.claim where seq = any (picked);
    insert into onceq.stream_plan (name, number, seq)
        select p_name, p_next + place - 1, seq from unnest(picked) with ordinality x (seq, place);
    update onceq.stream_relay set next = p_next + cardinality(picked) where name = p_name;
    return query select p_next + place - 1, y.body from unnest(picked) with ordinality x (seq, place)
        cross join lateral (select * from onceq.element z where z.seq = x.seq offset 0) y order by place;
end $$;

-- The next datagrams of a queue that is started, locked, in its order: what came back, then what is fresh; with
-- bodies of up to 8 MiB, though the last may go beyond.
create or replace function onceq.relay_pick(p_queue_id integer, p_n integer) returns bigint[]
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    at_lane smallint;
    picked bigint[] := '{}';
    next_few bigint[];
    room bigint := 8388608;
    due bigint := onceq.turn_at(onceq.now());
begin
    foreach at_lane in array (select '{10,11}' /* due, suspect */ || lanes from onceq.queue
            where queue_id = p_queue_id and dequeue_started
              and (paused_until is null or paused_until <= onceq.now())) loop
        exit when cardinality(picked) >= p_n or room <= 0;
        select coalesce(array_agg(seq order by turn, seq), '{}'), room - coalesce(sum(size), 0) into next_few, room from (
            select seq, turn, size, sum(size) over (order by turn, seq) - size as before from (
                select seq, turn, octet_length(body) as size from onceq.element
                where queue_id = p_queue_id and lane = at_lane and claimed_by is null and reply_queue_id is null
                  and (at_lane <= 9 /* fresh */ or turn <= due)
                order by turn limit p_n - cardinality(picked) for update skip locked) s) s
            where before < room;
        picked := picked || next_few;
    end loop;
    return picked;
end $$;

-- Ends what is planned below a number, as it is stable; but for p_voids, which are void in the stream, and are given
-- back. Returns how many ended.
create or replace function onceq.relay_finish(p_name text, p_epoch bigint, p_below bigint, p_voids bigint[])
returns bigint
language plpgsql volatile as $$
declare r onceq.stream_relay := onceq.relay_lock(p_name, p_epoch);
begin
    perform onceq.be_durable();
    perform onceq.relay_give_back(r, p_voids);
    return onceq.relay_conclude(r, array(select number from onceq.stream_plan
        where name = p_name and number < p_below));
end $$;

-- Forgets the positions and the relay of a name, whatever the stream has: what was planned is given back, and may be
-- sent again. A person's decision. Returns whether there was anything.
create or replace function onceq.stream_forget(p_name text) returns boolean
language plpgsql volatile as $$
declare
    r onceq.stream_relay;
    any_position boolean;
begin
    perform onceq.be_durable();
    select * into r from onceq.stream_relay where name = p_name for update;
    perform onceq.relay_give_back(r, array(select number from onceq.stream_plan where name = p_name))
        where r.name is not null;
    delete from onceq.stream_relay where name = p_name;
    delete from onceq.stream_position where name = p_name;
    any_position := found;
    return any_position or r.name is not null;
end $$;
