"""The tests' Javas begin with the classes that are kept: one that does not says nothing of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.java_classes import CLASSES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_java_of_a_session_has_the_file_of_classes_in_its_memory(spark: SparkSession) -> None:
    """Where it was told of one, as it is by `make test`, and memory can be looked at."""
    gateway: Any = spark.sparkContext._gateway
    maps = Path(f"/proc/{gateway.proc.pid}/maps")
    if maps.exists() and str(CLASSES) in os.environ["JDK_JAVA_OPTIONS"]:
        assert str(CLASSES) in maps.read_text(), f"{CLASSES} does not fit this Java: remove it"
