"""podium from Python: the names of ``import podium``, which the commands of the same names call.

Functions begin something and return an object that shows itself in a notebook: a Sweep, a Run, a
Training, a Model.
"""

import warnings

# optuna imports tqdm, which warns in a notebook that has no ipywidgets; podium shows its own
# progress.
warnings.filterwarnings("ignore", message="IProgress not found")
