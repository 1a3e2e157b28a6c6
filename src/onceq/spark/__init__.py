"""Spark as the server for throughput: a request server in one transaction per micro-batch.

Needs the extra `onceq[spark]`; importing this package imports neither PySpark nor Java.
"""

from onceq.spark.reading import reading
from onceq.spark.registration import register
from onceq.spark.server import Server, ServerSettings, SparkStatistics
from onceq.spark.session import build_session
from onceq.spark.tables import TableChange, add, insert, upsert
from onceq.spark.writing import writing

__all__ = [
    "Server",
    "ServerSettings",
    "SparkStatistics",
    "TableChange",
    "add",
    "build_session",
    "insert",
    "reading",
    "register",
    "upsert",
    "writing",
]
