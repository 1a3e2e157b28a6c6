-- How many executions were aborted lately (spec Q14): the last ones are found without reading all.
create index attempt_ended on onceq.attempt using brin (ended_at) with (pages_per_range = 16);
