"""The drivers: they perform Ops on one connection, and run Programs."""
