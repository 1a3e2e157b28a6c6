"""Fault points of streams: places where a process dies, fails or loses its links, once each."""
