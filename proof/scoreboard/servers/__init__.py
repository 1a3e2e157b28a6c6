"""The systems of the scoreboard, one a module, each run by the Python that has it."""
