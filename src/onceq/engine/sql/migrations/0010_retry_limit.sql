-- How often a handler's Retry, or a fault of the environment that counts, leaves an element uncharged.
alter table onceq.queue add column retry_limit smallint not null default 10
    check (retry_limit between 0 and 1000);
-- Of an answer of a Spark server with `retry`: how long its request is to wait; null: the queue's back-off.
alter table onceq.spark_reply add column after_s double precision;
