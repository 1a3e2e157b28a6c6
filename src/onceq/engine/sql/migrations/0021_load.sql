-- Which aborts were lately, for `onceq top` and the metrics (spec Q14). What never fails pays for none.
create index attempt_ended on onceq.attempt (ended_at);
