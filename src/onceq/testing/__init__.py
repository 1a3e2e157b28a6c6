"""For tests of onceq and of programs on it: memory driver, conformance, simulator."""
