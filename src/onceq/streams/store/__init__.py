"""Stores: who keeps streams. `disk_store` is a store, `serving` and `daemon` let others use it."""
