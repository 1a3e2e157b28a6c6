-- Of a suspect of a batch whose server died (G7): with how many of that batch it may run at most; null: alone.
alter table onceq.element add column together smallint;
