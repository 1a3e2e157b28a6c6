-- Who waits in a dequeue, without being a server, and where to ring: a row for each session that has
-- found nothing. Its lock says whether it sleeps still. UNLOGGED: after a crash nobody does.
create unlogged table onceq.dequeuer (
    backend_pid integer primary key,
    queue_id    integer not null,
    bell        text not null
);
