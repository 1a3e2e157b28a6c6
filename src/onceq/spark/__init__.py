"""Spark as the server for throughput: a request server in one transaction per micro-batch.

Needs the extra `onceq[spark]`; importing this package imports neither PySpark nor Java.
"""

from onceq.spark.given.tables import TableChange, add, insert, upsert
from onceq.spark.read.reading import reading
from onceq.spark.serve.context import Answer, RequestContext
from onceq.spark.serve.handlers import each, vectorised
from onceq.spark.serve.registration import register
from onceq.spark.serve.server import Server
from onceq.spark.serve.settings import ServerSettings, SparkStatistics
from onceq.spark.session import build_session
from onceq.spark.write.writing import writing

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
