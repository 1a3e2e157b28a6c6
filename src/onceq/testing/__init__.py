"""For tests of programs that use onceq: the plug-in for pytest, and its parts."""
