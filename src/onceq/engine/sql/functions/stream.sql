-- The receiving bridge: effects of a stream's messages, and how far they are, in one transaction (spec M38).
-- Tables: stream_position, queue (written). Locks: the list of queues, when an error queue is made; then the row of
-- the position, last of all in a handler's transaction.

-- Begins a life at a position, which fences the former ones; with p_life, goes on with that one. Waits for a
-- ghost, whose commit decides where the position is. Makes the error queue of this name.
create or replace function onceq.stream_open(
    p_name text, p_topic text, p_session text, p_life bigint,
    out life bigint, out stream text, out epoch bigint, out number bigint
)
language plpgsql volatile as $$
declare error_name text := p_name || '.error';
begin
    perform onceq.be_durable();
    if not exists (select from onceq.queue q where q.name = error_name collate "C" and q.destroyed_at is null) then
        perform pg_advisory_xact_lock('onceq.queue'::regclass::oid::integer, 0);
        insert into onceq.queue (name, kind) select error_name, 'error' where not exists (
            select from onceq.queue q where q.name = error_name collate "C" and q.destroyed_at is null);
    end if;
    insert into onceq.stream_position (name, topic, session) values (p_name, p_topic, p_session)
        on conflict do nothing;
    update onceq.stream_position p set life = p.life + (p_life is null)::integer
        where (p.name, p.topic, p.session) = (p_name, p_topic, p_session) and (p_life is null or p.life = p_life)
        returning p.life, p.stream, p.epoch, p.number into life, stream, epoch, number;
    if not found then
        perform onceq.stream_fenced(p_name);
    end if;
end $$;

-- Says that a later life of this name has taken over.
create or replace function onceq.stream_fenced(p_name text) returns void
language plpgsql volatile as $$
begin
    raise exception 'a later life of "%" has taken over, or the position was moved: nothing happened', p_name
        using errcode = 'OQ001', hint = 'end this one, or begin again, which fences the other';
end $$;

-- Begins a handler's transaction: refuses a life that is over before it has effects. Takes no lock: the decision is
-- stream_move. p_token tells this transaction from any that the handler may begin in its place.
create or replace function onceq.stream_hold(
    p_name text, p_topic text, p_session text, p_life bigint, p_epoch bigint, p_number bigint, p_token text
) returns boolean
language plpgsql volatile as $$
begin
    if not exists (select from onceq.stream_position
            where (name, topic, session, life) = (p_name, p_topic, p_session, p_life)
              and (epoch, number) = (p_epoch, p_number)) then
        perform onceq.stream_fenced(p_name);
    end if;
    perform set_config('onceq_setting.token', p_token, true);
    return true;
end $$;

-- Moves the position, if it is still where this life has it, and of this stream: a compare-and-set, the last
-- statement of a handler's transaction.
create or replace function onceq.stream_move(
    p_name text, p_topic text, p_session text, p_life bigint, p_epoch bigint, p_number bigint, p_stream text,
    p_to_epoch bigint, p_to_number bigint, p_token text
) returns boolean
language plpgsql volatile as $$
begin
    if current_setting('onceq_setting.token', true) is distinct from p_token then
        raise exception 'the handler of "%" ended its transaction: what it committed stays', p_name
            using errcode = 'OQ012', hint = 'leave COMMIT and ROLLBACK to onceq; use savepoints';
    end if;
    perform onceq.be_durable();
    update onceq.stream_position
        set stream = p_stream, epoch = p_to_epoch, number = p_to_number, moved_at = onceq.now()
        where (name, topic, session, life) = (p_name, p_topic, p_session, p_life)
          and (stream is null or stream = p_stream) and (epoch, number) = (p_epoch, p_number)
          and p_to_number > number and p_to_epoch >= epoch;
    if not found then
        perform onceq.stream_fenced(p_name);
    end if;
    return true;
end $$;
