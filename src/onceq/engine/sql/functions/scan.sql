-- Scans: the elements of a queue in its order, by key pages, without dequeuing (spec Q11).
-- Tables: element, queue, life (read). Locks: elements, in a locked scan: those that nobody has locked, in the order of the
-- queue; it waits for none of them.
--
-- The order of a queue is that of (lane, turn), by the index by which servers claim, and a place in it is all that is
-- kept from one page to the next. An element moves only forward: from a fresh lane to 10 or 11, and there to a later
-- turn, which is a time that is yet to come when it moves. So whoever goes forward meets all that stays, and some of it
-- twice, which is told by seq. What is sent, or redriven, after the beginning has a greater seq than any then.

-- Begins a scan.
create or replace function onceq.open_scan(
    p_queue text, p_locked boolean, out queue_id integer, out kind text, out last bigint
)
language plpgsql volatile as $$
declare q onceq.queue := onceq.find_queue(p_queue);
begin
    if p_locked then
        perform onceq.need_read_committed('a locked scan needs a READ COMMITTED transaction');
        if q.kind = 'reply' then
            raise exception 'queue "%" is of the replies to a client, which would have to wait for their locks', q.name
                using errcode = 'OQ007', hint = 'scan it without locked';
        end if;
    end if;
    queue_id := q.queue_id;
    kind := q.kind;
    select s.last_value into last from onceq.element_seq_seq s;
end $$;

-- The next p_n places after (p_lane, p_turn), in lanes 0 to 12, and all that share the last one's: many elements may wait
-- for one moment, and no index tells them apart. Of a fresh lane, whose turns are seqs, nothing behind p_last is looked at.
create or replace function onceq.scan_keys(
    p_queue_id integer, p_lane integer, p_turn bigint, p_last bigint, p_n integer
) returns table (seq bigint, lane integer, turn bigint, body_bytes integer)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan as $$
declare
    current bigint := coalesce((select l.life from onceq.life l), 9223372036854775807);  -- after a crash none is left
    first bigint := p_turn;
    until bigint;
    missing integer := p_n;
    found_now integer;
begin
    for l in p_lane .. 12 /* held */ loop
        until := case when l <= 9 /* fresh */ then p_last else 9223372036854775807 end;
        return query select e.seq, e.lane::integer, e.turn, octet_length(e.body) from onceq.element e
            where e.queue_id = p_queue_id and e.lane = l::smallint and e.turn > first and e.turn <= until
              and e.seq <= p_last and (e.life is null or e.life >= current)
            order by e.turn fetch first (missing) rows with ties;
        get diagnostics found_now = row_count;
        missing := missing - found_now;
        exit when missing <= 0;
        first := -9223372036854775808;
    end loop;
end $$;

-- Those of some elements that are in a queue now, in this order; if they are to be locked, only those that are unclaimed
-- and that nobody else has locked.
create or replace function onceq.scan_elements(p_queue_id integer, p_seqs bigint[], p_locked boolean)
returns setof onceq.element
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
declare current bigint := coalesce((select l.life from onceq.life l), 9223372036854775807);
begin
    if p_locked then
        return query select e.* from unnest(p_seqs) with ordinality x (seq, place) join onceq.element e on e.seq = x.seq
            where e.queue_id = p_queue_id and e.lane <= 12 /* held */ and e.claimed_by is null
              and (e.life is null or e.life >= current)
            order by x.place for update of e skip locked;
    else
        return query select e.* from unnest(p_seqs) with ordinality x (seq, place) join onceq.element e on e.seq = x.seq
            where e.queue_id = p_queue_id and e.lane <= 12 /* held */ and (e.life is null or e.life >= current)
            order by x.place;
    end if;
end $$;
