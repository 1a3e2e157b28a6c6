"""How a repository did over a time: facts, what was found in them, and the page."""
