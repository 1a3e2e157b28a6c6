"""Benchmarks: paired and alternating, so that a machine whose speed drifts still tells ratios.

One module a question, each with a `main`; `python -m bench` runs them all. Nothing here is a
test, and no test asserts a time.
"""
