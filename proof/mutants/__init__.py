"""Deliberately broken variants of onceq and of its checker, each of which the tests must catch.

A mutant is an entry of one of the TOML files here: what it breaks, why that matters, the exact text
that it changes, and the tests that are to catch it. `table` reads them, `lane` runs one in a copy
of the tree, `witness` says in the tests' own process how each ended, `verdict` judges that, `part`
runs them all, and `page` writes docs/maintainers/mutants.md.
"""
