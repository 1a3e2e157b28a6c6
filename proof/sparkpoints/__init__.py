"""The fault points of Spark, struck on a real Spark: a part of the proof, with its own drivers."""
