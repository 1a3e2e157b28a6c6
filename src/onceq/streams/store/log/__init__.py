"""The log of a store: one for all of its streams, in segments whose space is reserved.

`entries` has its bytes, `segments` its files, `opening` tells a torn tail from damage, `writing`
appends and syncs, `committer` does that in a thread, `index` finds numbers.
"""
