"""A queue in strict order under late commits, aborts, deaths and kills."""
