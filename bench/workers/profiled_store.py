"""A store under cProfile: `python -m bench.workers.profiled_store LISTEN DIRECTORY OUT`.

It says a line when others can connect; told to stop, it writes its profile.
"""

from __future__ import annotations

import cProfile
import sys
from pathlib import Path

from onceq.streams.store.running import RunningStore, StoreSettings, run_store


def main() -> None:
    """Run the store until it is told to stop."""
    listen, directory, out = sys.argv[1:]

    def ready(running: RunningStore) -> None:
        sys.stdout.write(f"{running.address}\n")
        sys.stdout.flush()
        profile.enable()

    profile = cProfile.Profile()
    run_store(StoreSettings(listen=listen, directory=Path(directory)), ready=ready)
    profile.disable()
    profile.dump_stats(out)


if __name__ == "__main__":
    main()
