"""The DataFrames around a batch function: whether it keeps a state, and what the sink gets.

Used by `onceq.spark.serve.server`, on the driver. All of it runs in the JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf
from pyspark.sql import types as st

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Microseconds, which Spark's default format drops.
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def has_state(answers: DataFrame) -> bool:
    """Returns whether computing this keeps a state from batch to batch, according to its plan."""
    known: Any = answers
    java = known.sparkSession.sparkContext._jvm  # noqa: SLF001 - explain() would print it
    execution = known._jdf.queryExecution()  # noqa: SLF001 - as above
    return "state info [" in java.PythonSQLUtils.explainString(execution, "simple")


def as_sink(answers: DataFrame) -> DataFrame:
    """Returns a batch function's result with its reply as bytes: from text, or a struct as JSON."""
    if "reply" not in answers.columns:
        return answers
    found = answers.schema["reply"].dataType
    if isinstance(found, st.StructType):
        reply = sf.to_json(sf.col("reply"), _JSON).cast("binary")
    elif isinstance(found, st.StringType | st.NullType):
        reply = sf.col("reply").cast("binary")
    else:
        return answers
    return answers.withColumn("reply", reply)
