-- Rids whose history was trimmed (spec finding 3, ADR 34): what is left of each request, so that it never runs twice.
-- rid_sha256: of its rid, in UTF-8; sha256: of its content. has_spent: a registrant may have such rows; false is sure
-- for whoever holds its anchor.
create table onceq.spent (
    registrant_id integer not null,
    outcome       onceq.outcome not null,
    eid           uuid not null,
    rid_sha256    bytea not null,
    sha256        bytea not null,
    primary key (registrant_id, rid_sha256)
);
alter table onceq.registrant add column has_spent boolean not null default false;
