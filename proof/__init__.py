"""The proof: one command that shows that nothing is lost and nothing runs twice.

`make proof` runs every part; `make test` runs the small size of each. Nothing in onceq imports it.
"""
