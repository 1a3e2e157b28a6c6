"""The command line: `onceq ...`. Imports everything, is imported by nothing."""
