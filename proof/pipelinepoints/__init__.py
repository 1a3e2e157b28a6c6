"""The fault points of the archive and of bulk enqueue, struck where Spark lives on: a part."""
