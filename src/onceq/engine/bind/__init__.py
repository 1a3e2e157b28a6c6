"""How an Op becomes a call of its SQL function, and how the rows that come back are read."""
