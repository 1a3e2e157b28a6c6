-- Which code may work with this repository (ADR 32). level: what its functions and views are of. serves: the
-- oldest level whose code they serve. Both null: from before there were levels. Never enum values: they cannot
-- be used in the transaction that adds them, and code of a former level cannot read them.
alter table onceq.repository add column level integer, add column serves integer;
