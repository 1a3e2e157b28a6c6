"""`python -m proof.torture`."""

from proof.torture.command import main

main()
