"""What the benchmark measures, each in a process of its own: onceq, the raw statements, the peers.

`base` holds the protocol that all of them speak. The peers (`*_peer`) run in an environment of
their own (`bench/peers.py`) without onceq: they import nothing of it.
"""
