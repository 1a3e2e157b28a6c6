"""A table as requests: rows are enqueued by the executors."""
