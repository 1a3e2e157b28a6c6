"""Clients that are killed at every step: each variant of recovery against the truth (C3 to C5)."""
