"""The source of a stream: it recovers, then sends to stores and receivers. Its parts are pure.

`program` (with `recovering`, `creating` and `admitting`) is a Program, `sending` is a core; drivers
bring them over a network, or a simulator does.
"""
