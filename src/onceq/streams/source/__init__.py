"""The source of a stream: what it does while it sends is a core (`sending`). Pure."""
