"""Spark as the server for throughput: a request server in one transaction per micro-batch.

Needs the extra `onceq[spark]`; importing this package imports neither PySpark nor Java.
"""
