-- By which number history and the attempts name a Spark server, in all its lives (spec P7). No session
-- and no claim group has it.
alter table onceq.spark_server add column server_no bigint not null default nextval('onceq.incarnation_seq');
