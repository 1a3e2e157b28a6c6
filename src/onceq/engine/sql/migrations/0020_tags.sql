-- Tags of reads and of kills (spec Q5). The rows that are there are of the two other kinds, so that none is looked at.
alter table onceq.registration drop constraint registration_kind_check;
alter table onceq.registration add constraint registration_kind_check
    check (kind in ('enqueue', 'dequeue', 'read', 'kill')) not valid;
