"""Stores: who keeps streams. So far without a network: `disk_store` is where to begin."""
