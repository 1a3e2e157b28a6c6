"""The history checker on histories: valid ones of any length, and every kind of broken one."""
