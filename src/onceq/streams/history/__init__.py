"""The history checker of streams: what all lives recorded, against G11.

For tests and other programs: recorders, which write files; `check(events)` in memory,
`check_files(paths)` and `python -m onceq.streams.history FILES...` for files. Invariants: it knows
nothing of how streams work, only what they promise. Never looks at a clock, a link or a disk of a
store but to record what that has in the end.
"""

from onceq.streams.history.checker import Report, check, check_files
from onceq.streams.history.files import Journal
from onceq.streams.history.recording import (
    Reader,
    ReceiverRecorder,
    SourceRecorder,
    digest,
    record_kept,
    record_opened,
)
from onceq.streams.history.rules import RULES, Broken, Rule

__all__ = [
    "RULES",
    "Broken",
    "Journal",
    "Reader",
    "ReceiverRecorder",
    "Report",
    "Rule",
    "SourceRecorder",
    "check",
    "check_files",
    "digest",
    "record_kept",
    "record_opened",
]
