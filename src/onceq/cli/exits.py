"""Exit codes: the one table from what went wrong to the code that the shell gets.

0 ok, 1 violation or mismatch, 2 usage, 3 not found, 4 cannot connect, 5 unknown outcome,
130 interrupted. The first row that fits decides.
"""

from __future__ import annotations

from typing import Final

from onceq import errors

OK: Final = 0
VIOLATION: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
CANNOT_CONNECT: Final = 4
UNKNOWN: Final = 5
INTERRUPTED: Final = 130

EXIT_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (KeyboardInterrupt, INTERRUPTED),
    (errors.InDoubt, UNKNOWN),
    (errors.QueueNotFound, NOT_FOUND),
    (errors.PeriodicNotFound, NOT_FOUND),
    (errors.SchemaMissing, NOT_FOUND),
    (FileNotFoundError, NOT_FOUND),
    (errors.FileMismatch, VIOLATION),
    (errors.SettingsDiffer, VIOLATION),
    (errors.RidReused, VIOLATION),
    (errors.QueueNotEmpty, VIOLATION),
    (errors.StatementRefused, VIOLATION),
    (errors.IllegalState, VIOLATION),
    (errors.UsageError, USAGE),
    (errors.SchemaMismatch, VIOLATION),
    (errors.SchemaTooNew, VIOLATION),
    (errors.EncodingRefused, VIOLATION),
    (errors.Fenced, VIOLATION),
    (errors.ClaimLost, VIOLATION),
    (errors.QueueStopped, VIOLATION),
    (errors.QueueFull, VIOLATION),
    (errors.DeadlineExceeded, VIOLATION),
    (errors.OperatingError, CANNOT_CONNECT),
)


def exit_code(error: BaseException) -> int:
    """Returns the exit code for an error; an error in no row is a violation."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), VIOLATION)
