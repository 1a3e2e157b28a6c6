-- Whether a Spark server's next claim looks at what is due again before what is fresh: by turns.
alter table onceq.spark_server add column due_first boolean not null default true;
