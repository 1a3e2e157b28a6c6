"""Spark as the server for throughput: a request server in one transaction per micro-batch.

Needs the extra `onceq[spark]`; importing this package imports neither PySpark nor Java.
"""

from onceq.spark.context import Answer, RequestContext
from onceq.spark.handlers import each, vectorised
from onceq.spark.reading import reading
from onceq.spark.registration import register
from onceq.spark.server import Server
from onceq.spark.session import build_session
from onceq.spark.settings import ServerSettings, SparkStatistics
from onceq.spark.tables import TableChange, add, insert, upsert
from onceq.spark.writing import writing

__all__ = [
    "Answer",
    "RequestContext",
    "Server",
    "ServerSettings",
    "SparkStatistics",
    "TableChange",
    "add",
    "build_session",
    "each",
    "insert",
    "reading",
    "register",
    "upsert",
    "vectorised",
    "writing",
]
