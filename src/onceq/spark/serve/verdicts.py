"""What the end of a query means for its supervisor: stop, start again, or start from nothing.

Used by `onceq.spark.serve.server`. Pure. It judges by what no value can forge: the classes of
Java's exceptions, where they were thrown, Spark's conditions, and the words of our own processes.
Texts quote what clients sent, and are never looked at.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from onceq import errors
from onceq.server.lives import UNMENDABLE
from onceq.spark.serve.words import Word


class Verdict(enum.Enum):
    """What to do about a failed query."""

    FENCED = "another driver serves under this name: stop"
    FORGET = "the checkpoint is not usable: delete it, and begin again"
    ENVIRONMENT = "nobody is to blame: begin again"
    PROGRAM = "the program or the schema is wrong for every request: stop"
    REFUSED = (
        "a statement was refused: with no rows in it again, it is wrong for all, else as CRASH"
    )
    STOPPED = "something else stopped the query: stop"
    CRASH = "something in the batch may be to blame: begin again, in halves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One exception of a chain of Java's. kinds: its class and its superclasses, innermost first.

    condition: Spark's own name for what happened. frames: where it was thrown, as CLASS.METHOD,
    innermost first.
    """

    kinds: tuple[str, ...]
    condition: str | None = None
    frames: tuple[str, ...] = ()

    def is_a(self, *kinds: str) -> bool:
        """Returns whether it is of one of these classes, or of a subclass."""
        return not set(kinds).isdisjoint(self.kinds)

    def was_in(self, *places: str) -> bool:
        """Returns whether one of these packages or classes had a part in it."""
        return any(frame.startswith(places) for frame in self.frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a failure. word: our own process's, if it failed. causes: outermost first.

    condition: PySpark's, if the driver's Python raised it.
    """

    word: Word | None = None
    causes: tuple[Cause, ...] = ()
    condition: str | None = None


_OF_RELATIONS: Final = "42"
"""SQLSTATEs about a relation, a column, a right, a constraint to conflict with; or one row."""
_STREAMING: Final = "org.apache.spark.sql.execution.streaming."
_READING: Final = (
    f"{_STREAMING}checkpointing.HDFSMetadataLog.applyFn",
    f"{_STREAMING}checkpointing.HDFSMetadataLog.get",
    f"{_STREAMING}runtime.StreamMetadata$.read",
)
"""Code that reads the notes of a checkpoint, and runs nothing of a batch."""
_STATE: Final = (
    f"{_STREAMING}state.HDFSBackedStateStoreProvider",
    f"{_STREAMING}state.RocksDB",
    f"{_STREAMING}state.StateStore$.",
)
"""Code that reads and writes a state, not code that computes with it."""
_UNUSABLE: Final = (
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
    "CANNOT_LOAD_STATE_STORE.CANNOT_",
    "CANNOT_LOAD_STATE_STORE.UNEXPECTED_",
    "CANNOT_LOAD_STATE_STORE.INVALID_",
)
_OF_CONTENT: Final = (
    "com.fasterxml.jackson.core.JsonProcessingException",
    "org.apache.hadoop.fs.ChecksumException",
    "java.io.EOFException",
    "java.io.FileNotFoundException",
)
"""Files that could be read, or do not exist."""
_FILES: Final = (
    "java.io.FileOutputStream.",
    "java.io.RandomAccessFile.",
    "java.io.UnixFileSystem.",
    "sun.nio.ch.FileDispatcherImpl.",
    "sun.nio.ch.FileChannelImpl.",
    "sun.nio.fs.",
    "org.apache.hadoop.fs.",
)
_PYTHON: Final = ("org.apache.spark.api.python.", "org.apache.spark.sql.execution.python.")
# A Python process of Spark that did not start has run nothing of a batch or a program.
_NOT_STARTED: Final = ("org.apache.spark.api.python.PythonWorkerFactory",)
_NO_SOCKET: Final = "CANNOT_OPEN_SOCKET"
_NOT_THE_PROGRAM: Final = frozenset({Verdict.FENCED, Verdict.FORGET, Verdict.ENVIRONMENT})


def judge_beginning(evidence: Evidence) -> Verdict | None:
    """Returns what it means that a query could not be started; None: the program is wrong.

    No batch has run by then: if one of Spark's own processes died, nobody is to blame.
    """
    if evidence.condition == _NO_SOCKET or any(map(_is_death_of_process, evidence.causes)):
        return Verdict.ENVIRONMENT
    verdict = judge(evidence)
    return verdict if verdict in _NOT_THE_PROGRAM else None


def judge(evidence: Evidence) -> Verdict:
    """Returns what a failure means."""
    if evidence.word is not None:
        return _judge_word(evidence.word)
    if any(cause.was_in(*_NOT_STARTED) for cause in evidence.causes):
        return Verdict.ENVIRONMENT
    if any(map(_is_of_files, evidence.causes)):
        return Verdict.ENVIRONMENT
    if any(map(_is_of_checkpoint, evidence.causes)):
        return Verdict.FORGET
    return Verdict.CRASH


def _judge_word(word: Word) -> Verdict:
    kind = getattr(errors, word.kind, errors.OnceqError)
    if kind is errors.Fenced:
        return Verdict.FENCED
    if kind is errors.FileMismatch:
        return Verdict.FORGET
    if kind is errors.SchemaMissing or (word.sqlstate or "").startswith(_OF_RELATIONS):
        return Verdict.REFUSED
    if kind in UNMENDABLE:
        return Verdict.PROGRAM
    return Verdict.ENVIRONMENT if issubclass(kind, errors.OperatingError) else Verdict.CRASH


def _is_of_files(cause: Cause) -> bool:
    """Returns whether a file could not be written or read: no space, no right, a broken disk."""
    if cause.is_a("org.apache.hadoop.fs.FSError"):
        return True
    is_of_disk = cause.is_a("java.io.IOException") and not cause.is_a(*_OF_CONTENT)
    return is_of_disk and cause.frames[:1] != () and cause.frames[0].startswith(_FILES)


def _is_of_checkpoint(cause: Cause) -> bool:
    """Returns whether Spark could not make sense of a checkpoint, or of something missing in it."""
    if cause.was_in(*_READING):
        return True
    is_named = (cause.condition or "").startswith(_UNUSABLE)
    if is_named and (cause.kinds[0].startswith(_STREAMING) or cause.was_in(*_STATE)):
        return True
    return cause.is_a("java.io.IOException") and cause.was_in(*_STATE)


def _is_death_of_process(cause: Cause) -> bool:
    is_end = cause.is_a("java.io.EOFException", "java.net.SocketException")
    return is_end and cause.was_in(*_PYTHON)
