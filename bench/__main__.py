"""Runs every benchmark: `python -m bench`."""

from bench import hot_path

hot_path.main()
