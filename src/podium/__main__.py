"""``python -m podium``: the command line, by this interpreter."""

from podium.cli import main

main()
