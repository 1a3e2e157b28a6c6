"""Power cuts: PostgreSQL on a device that is frozen under load, and what recovers from the copy.

`part.PART` is the part of the proof; `devices` and `drive` are the disk, `load` and `participant`
run on it, `verdict` says what is wrong with what recovered. Needs root, on Linux.
"""
