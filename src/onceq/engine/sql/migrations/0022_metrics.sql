-- Which aborts were lately (spec Q14). What never fails pays for none.
create index attempt_ended on onceq.attempt (ended_at);
