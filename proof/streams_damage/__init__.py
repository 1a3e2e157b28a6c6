"""Bits that flip in the log of a store, while a receiver catches up, and before a store starts."""
