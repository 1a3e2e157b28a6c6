"""The archive under kills: a part of the proof, the rows that it makes, the processes it kills."""
