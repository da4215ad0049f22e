"""``python -m tightset``: the command line."""

from tightset.cli import main

main()
