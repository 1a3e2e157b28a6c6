"""Fuzzing of streams: frames, asks and answers that no honest process sends, to what ships.

Stores, receivers and sources are the product's cores. Nothing may raise but what refuses, nothing
damaged may have an effect, whatever is sound has one answer, and what is held stays bounded.
"""
