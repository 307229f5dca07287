"""Prepare a dataset: read a source, divide it, write one artifact."""

from contextlib import nullcontext, suppress
from pathlib import Path

from podium.data.option_text import options_as
from podium.data.schema import DatasetInfo
from podium.data.sealed import seal
from podium.errors import PodiumError
from podium.models.document import name_for
from podium.models.power import MOST, Detectable, of_data, of_model
from podium.models.registry import open_registry
from podium.steps.fingerprint_data import keep_prepared
from podium.storage import local_path
from podium.training.base import say
from podium.training.dataset import DataSettings
from podium.training.identity import StepContext
from podium.training.preparation import check_model, prepare

__all__ = ["DataSettings", "prepare_data"]


def prepare_data(
    settings: DataSettings,
    target: str | Path,
    *,
    test: str | Path | None = None,
    cache: Path | None = None,
    metric: str = "",
    model_name: str = "",
    rule: str = "",
    fingerprint: str = "",
    uri: str = "",
    step: StepContext | None = None,
) -> DatasetInfo:
    """Write the dataset artifact that every trainer and the evaluation read.

    Items are divided as podium.data.splits says. The 60,000 training images of MNIST and
    Fashion-MNIST are split into train and validation, every class in proportion (54,000 and 6,000
    by default); their 10,000 test images are always kept whole, so that results stay comparable.

    Args:
        target: Directory to write, which appears whole or not at all, or an ``s3://`` or
            ``minio://`` prefix.
        test: As target, for the test part; beside the target, see podium.data.artifact, if None.
            That of a run whose artifacts are on this machine is encrypted.
        cache: Directory of verified downloads; the machine's own if None.
        metric: What models will be chosen by; refused here if it is of the other kind, before
            anything is trained.
        model_name: Name in the registry of the model that will be trained on it, see check_model;
            empty for the dataset's.
        rule: By which a challenger will be promoted: it is said what that can show on the test
            part.
        fingerprint: The source's, see fingerprint_data; it is kept for the next run.
        uri: Of the artifact at target, in a pipeline.
        step: The step of a pipeline; without one there is neither a registry nor a next run.

    Raises:
        InvalidInput: The data, an option or the metric breaks a rule, items occur in two parts,
            target holds something else, or the model is for another task or can hardly be compared
            on these data.
        NotFound: The source lacks a file.
        Damaged: The source has a wrong file.
        Failed: No source has the files; the message names each.
        Conflict: The prefix holds another dataset.
        PodiumError: The artifact cannot be written, for example on a full disk.
    """
    with options_as(settings.data_options) if step else nullcontext():
        info = prepare(settings, target, test, cache, metric)
    if step:
        model_name = model_name or name_for(info.name)
        check_model(model_name, step.storage, str(test or target), info, settings)
    shows = str(_power(info, rule, metric, model_name, step) or "")
    if shows:
        say(shows)
    if test and uri and (directory := local_path(test)) and local_path(uri):
        seal(directory)  # last: it is open for the checks above
    if fingerprint and step:
        counts = {part: described.count for part, described in info.parts.items()}
        keep_prepared(step, settings, fingerprint, counts, shows)
    return info


def _power(
    info: DatasetInfo, rule: str, metric: str, model_name: str, step: StepContext | None
) -> Detectable | None:
    """Return what the test part can show: by the champion and another version where there are such
    of the same test items, else of a first model."""
    if step and info.parts["test"].count <= MOST:
        with suppress(PodiumError):
            model = open_registry(step.storage).model(model_name)
            champion = model.find_champion()
            if champion and champion.facts.dataset.test_digest == info.test_digest:
                return of_model(model, rule, metric)
    return of_data(info, rule, metric)
