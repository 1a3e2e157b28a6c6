"""Rubbish for everything that takes something from outside: it works, or it is refused in words."""
