"""The simulator: what ships, under seeded schedules and faults, over the oracle."""
