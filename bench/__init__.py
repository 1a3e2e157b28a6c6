"""Benchmarks: paired and alternating, so that a machine whose speed drifts still tells ratios.

`python -m bench` measures all rows of the table in docs/performance.md, one module a question:
`cases` and `rows` the pairs with other systems, `ceilings`, `overhead`, `recovery`, `flatness` and
`spark_rows` the others. `python -m bench profile` says where the time goes. Nothing here is a test,
and no test asserts a time.
"""
