"""Benchmarks: paired and alternating, so that ratios hold on a machine whose speed drifts.

`python -m bench` measures all rows of the table in docs/performance.md, with one module for each
question: `cases` and `rows` have the pairs with other systems; `ceilings`, `overhead`, `recovery`,
`flatness` and `spark_rows` the others. `python -m bench profile` shows where the time goes. Nothing
here is a test, and no test asserts a time.
"""
