-- What is known of a server's process that is missing (G7): identity: by which its own machine tells
-- whether it is gone. missed_at: when all its sessions were first found ended. charges: what it had
-- started by then, {seq: charge}, which waits for a verdict. ended: it is known to have ended.
alter table onceq.server add column identity text;
alter table onceq.server add column missed_at timestamptz;
alter table onceq.server add column charges jsonb;
alter table onceq.server add column ended boolean not null default false;
