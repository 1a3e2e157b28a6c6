"""The oracle: the reference semantics of the queue manager, in memory.

Used by the memory driver, the simulator and the conformance suite. Answers every Op of
`onceq.model.ops` except those of the driver itself (Call, Wait, Stopping). Invariants: no I/O, no
clock, no randomness (time and ids are injected); each Op is atomic; transactions see what
READ COMMITTED shows; an Op that must wait raises `Blocked`, and then nothing of it has happened.
Never retries and never decides who runs next.
"""

from proof.oracle.oracle import Oracle, Session
from proof.oracle.rows import Blocked

__all__ = ["Blocked", "Oracle", "Session"]
