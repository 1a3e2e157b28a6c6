"""How a process that sleeps learns that there is work: bells, LISTEN, and one watch for all."""
