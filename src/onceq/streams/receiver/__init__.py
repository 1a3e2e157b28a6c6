"""The receiver of a stream: it finds its place, catches up from stores, then follows its source.

Its parts are pure: `delivering` is a core, `placing` and `catching_up` are Programs.
"""
