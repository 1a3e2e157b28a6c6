"""What the end of a query means for its supervisor: stop, begin again, or begin from nothing.

Used by `onceq.spark.server`. Pure. Spark hands on the errors of its Python processes as text only,
so it is text that is judged here: the name of the error of onceq that was raised last.
"""

from __future__ import annotations

import enum
import re

from onceq import errors

__all__ = ["UNMENDABLE", "Verdict", "judge", "judge_beginning"]


class Verdict(enum.Enum):
    """What to do about a failed query."""

    FENCED = "another driver serves under this name: stop"
    FORGET = "the checkpoint is not usable: delete it, and begin again"
    ENVIRONMENT = "nobody is to blame: begin again"
    PROGRAM = "the program or the schema is wrong for every request: stop"
    CRASH = "something in the batch may be to blame: begin again, in halves"


UNMENDABLE = (
    errors.SchemaMismatch,
    errors.SchemaMissing,
    errors.SchemaTooNew,
    errors.PostgresTooOld,
    errors.PoolerDetected,
)
"""What no later attempt mends."""

_RAISED = re.compile(r"onceq\.errors\.([A-Za-z]+)")
_CHECKPOINT = re.compile(
    r"Incomplete log file|Log file was malformed|Malformed log|does not match the expected|"
    r"CHECKPOINT_[A-Z_]*(?:INVALID|MISMATCH|CORRUPT)|INCOMPATIBLE_CHECKPOINT|"
    r"unexpected end-of-input|No content to map due to end-of-input"
)
# What a handler, an expression or a data source raised is in its own words: they say nothing of
# the checkpoint, which Spark's Java reads.
_IN_WORDS_OF_OTHERS = re.compile(r"Traceback \(most recent call last\)|USER_RAISED_EXCEPTION")
# Of a relation, a column, a right, a constraint to conflict with: wrong for all alike.
_FOR_ALL = re.compile(r"SQLSTATE 42")
# A Python process of Spark was too slow to start: it has run nothing of a batch, or of a program.
_NOT_STARTED = re.compile(r"Python worker failed to connect back")
_SPARK_DIED = re.compile(
    r"Python worker exited unexpectedly|reading the port number from pyspark.daemon|"
    r"CANNOT_OPEN_SOCKET"
)
_NOT_THE_PROGRAM = frozenset({Verdict.FENCED, Verdict.FORGET, Verdict.ENVIRONMENT})


def judge_beginning(text: str) -> Verdict | None:
    """Returns what it means that a query could not be begun; None: the program is wrong.

    No batch has run by then: when one of Spark's own processes died, nobody is to blame.
    """
    if _SPARK_DIED.search(text):
        return Verdict.ENVIRONMENT
    verdict = judge(text)
    return verdict if verdict in _NOT_THE_PROGRAM else None


def judge(text: str) -> Verdict:
    """Returns what the failure with this text means."""
    raised = _RAISED.findall(text)
    kind = getattr(errors, raised[-1], None) if raised else None
    if kind is errors.Fenced:
        return Verdict.FENCED
    if kind is None and _NOT_STARTED.search(text):
        return Verdict.ENVIRONMENT
    if kind is errors.FileMismatch or (kind is None and _is_of_checkpoint(text)):
        return Verdict.FORGET
    if kind in UNMENDABLE:
        return Verdict.PROGRAM
    if isinstance(kind, type) and issubclass(kind, errors.OperatingError):
        return Verdict.ENVIRONMENT
    if kind is errors.StatementRefused and _FOR_ALL.search(text):
        return Verdict.PROGRAM
    return Verdict.CRASH


def _is_of_checkpoint(text: str) -> bool:
    return not _IN_WORDS_OF_OTHERS.search(text) and _CHECKPOINT.search(text) is not None
