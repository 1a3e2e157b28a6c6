"""Power cuts under three stores at once: what a source was told to be stable must be there."""
