"""One client with many requests outstanding, killed at random; see `proof.windows.part`."""
