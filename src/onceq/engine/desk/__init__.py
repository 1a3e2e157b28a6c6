"""The desk: clerks that share connections, and what waits together commits together (ADR 28)."""
