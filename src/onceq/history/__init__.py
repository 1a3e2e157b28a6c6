"""The history checker: what every process recorded, and the final state, against G1 to G8.

For the simulator, crash tests and other programs: `check(events, final)` in memory,
`check_files(folder)` and `python -m onceq.history FOLDER` for files. Invariants: it knows
nothing of how onceq works, only what it promises (spec 2). Never looks at a clock or a database.
"""

from onceq.history.checker import Report, check, check_files
from onceq.history.events import FinalState, Place, Recorder, load
from onceq.history.table import REJECTED
from onceq.history.violation import Violation

__all__ = [
    "REJECTED",
    "FinalState",
    "Place",
    "Recorder",
    "Report",
    "Violation",
    "check",
    "check_files",
    "load",
]
