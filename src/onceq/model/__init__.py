"""The pure model of onceq: values, Ops, state tables. No I/O, no clock, no random numbers."""
