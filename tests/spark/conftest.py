"""One Spark session for all of tests/spark: it takes 4 to 10 s and a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from onceq.spark.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session("onceq-tests", master="local[2]")
    yield session
    session.stop()
