"""The model of streams: seeded schedules of sources, stores and receivers, and what is promised.

It shares with the product what is to be judged: the tables of what a store does, the choice of a
log, the quorums (`onceq.streams.model`). All else is its own: abstract stores, lives of sources and
receivers, misfortunes, and the promises I1 to I7 (`promises.py`). `rules.py` lists the rules, each
of which a broken variant lacks. `python -m proof.streams_model --seed N` shows a schedule.
"""
