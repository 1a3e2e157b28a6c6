"""A repository as tables: what can be read, in parts, as record batches."""
