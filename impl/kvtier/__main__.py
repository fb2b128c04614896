"""`python -m kvtier` is `kvtier`."""

from kvtier.cli import main

main()
