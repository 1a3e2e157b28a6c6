"""Ways to break a repository, which an audit must find."""
