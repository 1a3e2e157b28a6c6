"""The scoreboard: onceq and its peers killed at work in the same way, and counted alike."""
