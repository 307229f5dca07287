"""Files that the trials of population based training hand to one another (katib:
pkg/webhook/v1beta1/pod)."""

import shutil
from pathlib import Path, PurePosixPath

from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import PBT_PARENT


def trial_directory(experiment: Experiment) -> str | None:
    """Return the path at which the trials of an Experiment find their own and their parent's files,
    if they do."""
    given = experiment.algorithm.settings.get("suggestion_trial_dir")
    return str(PurePosixPath(given)) if given else None


def prepare(root: Path, trial: Trial) -> Path:
    """Return a trial's directory below root with its parent's files; files from before a restart
    are deleted."""
    own, parent = root / trial.name, trial.labels.get(PBT_PARENT)
    shutil.rmtree(own, ignore_errors=True)
    if parent:
        shutil.copytree(root / parent, own)
    else:
        own.mkdir(parents=True)
    return own
