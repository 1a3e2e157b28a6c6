"""Connections between sources, receivers and stores: frames over TCP, and what performs Ops.

`link` is one connection, `asker` asks stores over links, `address` says who may be listened to.
"""
