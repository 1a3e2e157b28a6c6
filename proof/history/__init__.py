"""The history checker against histories: valid ones of any length, and every kind of broken one."""
