"""The model: an abstract client, clerk, queue manager and servers, explored state by state.

Written from the specification; it imports nothing of onceq. `python -m proof.model --help` runs one
configuration or one broken variant; `proof.model.part` is the part of `make proof`. A state is a
short `bytes`; `layout.py` says what each place in it means. Nothing here does I/O but `__main__`.
"""
