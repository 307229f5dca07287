"""``python -m podium``: the command line, by this interpreter."""

from podium.cli import main

if __name__ == "__main__":  # else a walk over the modules would run a command
    main()
