"""Bridges of streams struck at each of their steps, in processes on a real PostgreSQL."""
