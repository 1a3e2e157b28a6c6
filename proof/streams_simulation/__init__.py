"""The simulation of streams: what ships, over memory stores and a network that fails, by one seed.

Sources and receivers are the product's Programs and cores; stores are its core (`serving`) and its
Programs over memory stores. Only links, time and chance are simulated. What is promised is judged
as in the model of recovery: I1 to I7 (`proof.streams_model.promises`).
"""
