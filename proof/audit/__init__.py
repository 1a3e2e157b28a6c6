"""The audit at scale: a part of the proof, the history that it makes, the ways to break it."""
