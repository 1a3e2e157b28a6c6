"""What programs use of streams: contexts, and their sources and receivers, sync and async.

`onceq.streams` is the door. The async ones are the logic; sync callers have a thread in which a
loop runs these, and hand over to it what they send, and from it what they get.
"""
