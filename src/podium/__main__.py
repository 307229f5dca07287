"""``python -m podium``: the command line, by this interpreter."""

import sys

from podium.cli import main

sys.exit(main())
