"""A stream in Spark: what a query is told of it, and how its stores are asked."""
