"""The part of the proof that compares how native servers and Spark decode requests."""
