"""For tests of programs on onceq: the plug-in for pytest, and its parts."""
