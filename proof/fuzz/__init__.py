"""Rubbish for everything that takes input: it works, or it is refused in words."""
