"""The proof: what shows that nothing is lost and nothing runs twice, in one command.

`make proof` runs every part; `make test` runs the small size of each. Nothing of onceq imports it.
"""
