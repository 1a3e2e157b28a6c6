"""The pure parts of streams: values, tables and decisions, without I/O, clock or chance.

`states` and `choice` are the rules of recovery, as tables; the model of recovery in `proof` runs by
these very tables, and so will the store and the source. Numbers of a stream begin at 0; bounds are
exclusive (`end`, `stable_below`), except in events and in what UM's call-backs are given.
"""
