"""Clients that come back, many at a time: from the archive, and from what they kept."""
