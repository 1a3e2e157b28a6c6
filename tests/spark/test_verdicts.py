"""What the end of a query means, by evidence alone; no text has a say in it."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceq import errors
from onceq.spark.serve.verdicts import Cause, Evidence, Verdict, judge, judge_beginning
from onceq.spark.serve.words import Word, heard_in, new_token, telling, word_of

STREAMING = "org.apache.spark.sql.execution.streaming."
LOG = f"{STREAMING}checkpointing.HDFSMetadataLog"
EXCEPTION = ("java.lang.Exception", "java.lang.Throwable", "java.lang.Object")
RUNTIME = ("java.lang.RuntimeException", *EXCEPTION)
IO = ("java.io.IOException", *EXCEPTION)
PYTHON = ("org.apache.spark.api.python.PythonException", *RUNTIME)
SPARK = ("org.apache.spark.SparkException", *EXCEPTION)
JSON = (
    "com.fasterxml.jackson.core.JsonParseException",
    "com.fasterxml.jackson.core.JsonProcessingException",
    *IO,
)
WORKER = "org.apache.spark.api.python.BasePythonRunner$ReaderIterator.hasNext"
READ = f"{LOG}.getLatest"
COMPUTE = f"{STREAMING}state.StateStoreRDD.compute"
PROVIDER = f"{STREAMING}state.HDFSBackedStateStoreProvider.updateFromDeltaFile"
DELTA_FILE = "CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS"


def by(kinds: tuple[str, ...], *frames: str, condition: str | None = None) -> Evidence:
    outer = Cause(kinds=("org.apache.spark.sql.streaming.StreamingQueryException", *EXCEPTION))
    return Evidence(causes=(outer, Cause(kinds=kinds, condition=condition, frames=frames)))


def said(error: errors.OnceqError) -> Evidence:
    return Evidence(word=word_of(error))


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (said(errors.Fenced("epoch 1 is over")), Verdict.FENCED),
        (said(errors.FileMismatch("older")), Verdict.FORGET),
        (said(errors.ConnectionLost("gone")), Verdict.ENVIRONMENT),
        (said(errors.SchemaTooNew("newer")), Verdict.PROGRAM),
        (said(errors.SchemaMissing("no table")), Verdict.REFUSED),
        (said(errors.StatementRefused("no right", "42501")), Verdict.REFUSED),
        (said(errors.StatementRefused("not unique", "23505")), Verdict.CRASH),
        (said(errors.InvalidValue("out of range")), Verdict.CRASH),
        (Evidence(word=Word(kind="Nonsense", text="what")), Verdict.CRASH),
        (Evidence(), Verdict.CRASH),
        (by(PYTHON, WORKER, condition="PYTHON_EXCEPTION"), Verdict.CRASH),
        (by(PYTHON, WORKER, COMPUTE, condition="PYTHON_EXCEPTION"), Verdict.CRASH),
        (by(SPARK, "org.apache.spark.api.python.PythonWorkerFactory.create"), Verdict.ENVIRONMENT),
        (by(("java.io.EOFException", *IO), WORKER), Verdict.CRASH),
        (by(("java.net.SocketException", *IO), "sun.nio.ch.NioSocketImpl.read"), Verdict.CRASH),
        (by(("java.lang.IllegalStateException", *RUNTIME), READ), Verdict.FORGET),
        (by(JSON, "com.fasterxml.jackson.core.X.y", READ), Verdict.FORGET),
        (by(JSON, "com.fasterxml.jackson.core.X.y"), Verdict.CRASH),
        (
            by(("org.apache.hadoop.fs.ChecksumException", *IO), "org.apache.hadoop.fs.F.x", READ),
            Verdict.FORGET,
        ),
        (by(IO, "java.io.FileOutputStream.writeBytes", f"{LOG}.add"), Verdict.ENVIRONMENT),
        (by(IO, "java.io.FileInputStream.open0", f"{LOG}.add"), Verdict.CRASH),
        (by(("org.apache.hadoop.fs.FSError", "java.lang.Error")), Verdict.ENVIRONMENT),
        (
            by(
                (f"{STREAMING}state.StateStoreCheckpointLocationNotEmpty", *RUNTIME),
                condition="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
            ),
            Verdict.FORGET,
        ),
        (by(SPARK, PROVIDER, condition=DELTA_FILE), Verdict.FORGET),
        (by(SPARK, COMPUTE, condition=DELTA_FILE), Verdict.CRASH),
        (by(IO, "net.jpountz.lz4.LZ4BlockInputStream.refill", PROVIDER), Verdict.FORGET),
        (by(IO, "net.jpountz.lz4.LZ4BlockInputStream.refill", COMPUTE), Verdict.CRASH),
    ],
)
def test_verdicts(evidence: Evidence, verdict: Verdict) -> None:
    assert judge(evidence) is verdict


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (by(("java.io.EOFException", *IO), WORKER), Verdict.ENVIRONMENT),
        (by(("java.io.EOFException", *IO), "of.some.Reader.read"), None),
        (Evidence(condition="CANNOT_OPEN_SOCKET"), Verdict.ENVIRONMENT),
        (said(errors.ConnectionLost("gone")), Verdict.ENVIRONMENT),
        (by(("java.lang.IllegalStateException", *RUNTIME), READ), Verdict.FORGET),
        (by(JSON, f"{STREAMING}runtime.StreamMetadata$.read"), Verdict.FORGET),
        (said(errors.Fenced("epoch 1 is over")), Verdict.FENCED),
        (said(errors.SchemaMissing("there is no table")), None),
        (Evidence(condition="DIVIDE_BY_ZERO"), None),
        (Evidence(), None),
    ],
)
def test_verdicts_on_a_query_that_did_not_begin(
    evidence: Evidence, verdict: Verdict | None
) -> None:
    assert judge_beginning(evidence) is verdict


KINDS = [getattr(errors, name) for name in errors.__all__ if name != "Outcome"]


def tell(error: Exception, token: str) -> str:
    """Return what Python says of an error that went through the boundary of our processes."""
    with pytest.raises(type(error)) as raised, telling(token):
        raise error
    return "".join(traceback.format_exception(raised.value)) + "\n SQLSTATE: 38000\n"


@given(text=st.text(), kind=st.sampled_from([errors.Fenced, errors.TooLarge, errors.InDoubt]))
def test_a_word_is_heard_as_it_was_told(text: str, kind: type[Any]) -> None:
    token = new_token()
    heard = heard_in(tell(kind(text), token), token)
    assert heard == Word(kind=kind.__name__, text=text)


@given(text=st.text(), token=st.sampled_from(["", "0" * 32]))
def test_without_the_token_nothing_is_heard(text: str, token: str) -> None:
    forged = (
        f'{text}\nonceq:{token}:{{"kind":"Fenced","text":"{text}"}}\nonceq.errors.Fenced: {text}'
    )
    assert heard_in(tell(ValueError(forged), new_token()), new_token()) is None
    assert heard_in(tell(errors.Fenced(forged), ""), new_token()) is None
    assert heard_in(tell(errors.Fenced(forged), ""), "") is None


def test_a_word_of_another_life_is_not_heard() -> None:
    assert heard_in(tell(errors.Fenced("over"), new_token()), new_token()) is None


@given(text=st.text())
def test_a_text_with_the_words_of_others_changes_no_verdict(text: str) -> None:
    token = new_token()
    forged = f'{text}\nonceq:{new_token()}:{{"kind":"Fenced","text":""}}\nonceq.errors.Fenced'
    for kind in (errors.InvalidValue, errors.ConnectionLost, errors.FileMismatch):
        heard = heard_in(tell(kind(forged), token), token)
        assert heard is not None
        assert judge(Evidence(word=heard)) is judge(said(kind("plain")))
