-- When a registrant began its present life, or its last: for `onceq client list`. null: before this.
alter table onceq.registrant add column connected_at timestamptz;
