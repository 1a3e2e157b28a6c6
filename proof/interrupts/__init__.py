"""Clients and managers that are interrupted, or cancelled, in the middle of their calls."""
