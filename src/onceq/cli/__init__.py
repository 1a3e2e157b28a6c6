"""The command line: `onceq ...`. It imports everything, and nothing imports it."""
