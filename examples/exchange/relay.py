"""The relay: what is in the queue of moves becomes messages of the topic of moves, each once.

python -m examples.exchange.relay RUN
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from examples.exchange.market import MOVED, MOVES, REPOSITORY, SESSIONS, RunDirectory, Setup
from examples.running.lifeline import hold_lifeline
from examples.running.status import say
from onceq import streams


def serve(setup: Setup) -> None:
    """Relays until SIGTERM."""
    relay = streams.relay(
        MOVED,
        MOVES,
        name="relay",
        session_id=SESSIONS["relay"],
        stores=setup.list,
        listen=setup.listens["relay"],
        url=setup.url,
        repository=REPOSITORY,
    )
    signal.signal(signal.SIGTERM, lambda *_: relay.stop())
    say(ready=True)
    relay.run()


if __name__ == "__main__":
    hold_lifeline()
    serve(RunDirectory(Path(sys.argv[1])).read_setup())
