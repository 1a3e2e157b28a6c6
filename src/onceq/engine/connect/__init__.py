"""Connections to a repository, a ledger, or of the caller: opened, kept and made again."""
