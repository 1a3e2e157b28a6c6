"""Bridges between streams and queues: effects of messages, each once, and messages of datagrams.

Above sources and receivers. PostgreSQL has the position of either, and moves it with the effects.
"""
