-- Of an answer of a Spark server with an error: where in its function that was raised.
alter table onceq.spark_reply add column traceback text;
