-- Clients whose name was closed for ever (spec finding 3, ADR 34). closed_at: when; null: it was not.
alter table onceq.registrant add column closed_at timestamptz;
