"""Torture of streams: real processes, killed, stopped and parted, and judged by what they noted.

Three stores behind proxies, lives of a source and of receivers. Each process notes what it was told
and what it showed, in files that outlive it; at the end that, and the logs of the stores, must fit.
"""
