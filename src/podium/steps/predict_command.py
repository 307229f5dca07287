"""Run a model's predict command in its job: ``python -m podium.steps.predict_command``.

The job runs in the image that the model was trained in, whose podium may be older than the one that
starts it: this is the name that all of them know.
"""

import sys

from podium.prediction.command import main

if __name__ == "__main__":
    sys.exit(main())
