"""What the parts of the evidence share: participants, faults, ground truth."""
