"""Requests that have ended, in files: written, put together, read again, restored."""
