-- Where in the handler an execution failed: its traceback, at most 16 KiB; null where there is none. The
-- archive does not have it: it goes with the row.
alter table onceq.attempt add column traceback text;
