"""The systems of the scoreboard, one in each module, each run by the Python that has it."""
