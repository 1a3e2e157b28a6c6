"""Persistent streams: sources send to receivers and to stores at once; what is stable stays.

Being built: so far there are its pure parts (`model`), and stores that serve (`store`, `net`).
Nothing here is public yet, and no other part of onceq imports it. Source: UM; the promise is G11.
"""
