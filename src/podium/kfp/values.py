"""What podium's own pipelines demand of their parameters' values, beyond a type: said before anything is launched."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, require

if TYPE_CHECKING:
    from podium.manifests.experiment import Experiment

PIPELINES = ("tune-and-promote", "train-and-promote")
"""Names in the compiled pipelines; another pipeline may mean anything by the same parameters."""

LEAST = {
    "max_trials": 1, "parallel_trials": 1, "trial_epochs": 0, "trial_workers": 0, "epochs": 0, "workers": 0,
    "gpus_per_worker": 0,
}  # fmt: skip

SWEEP = frozenset(("experiment", "max_trials", "parallel_trials", "trial_epochs", "trial_workers", "network", "seed",
                   "gpus_per_worker"))  # fmt: skip


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse now what a later step would, after hours of training.

    Args:
        values: The parameters of one of our pipelines; those that a version of it on a server lacks are passed over.

    Raises:
        InvalidInput: A value breaks its rule, or there is no such Experiment.
    """
    from podium.cluster import check_url
    from podium.data.known import LEAST_LIMIT, known_dataset
    from podium.manifests.placement import Pods
    from podium.registry import PromotionRule
    from podium.registry.document import check_name

    for name, least in LEAST.items():
        require(values.get(name, least) >= least, f"{name} >= {least}", **{name: values.get(name)})
    limit = values.get("limit", 0)
    hint = "train and validation together; 0 takes all"
    require(limit == 0 or limit >= LEAST_LIMIT, f"limit >= {LEAST_LIMIT}", hint, limit=limit)
    if values.get("dataset") is not None and not values.get("source"):
        known_dataset(values["dataset"])
    require(0 <= values.get("seed", 0) < 2**32, "0 <= seed < 2**32", seed=values.get("seed"))
    require(values.get("trainer_image") != "", "trainer_image is a name like host/name:tag", trainer_image="")
    Pods.read(values.get("pods", {}))
    if values.get("cluster"):
        check_url(values["cluster"])
    if values.keys() >= SWEEP:
        adapted(values)
    if "rule" in values:
        PromotionRule.parse(values["rule"])
    if "model_name" in values:
        check_name("model name", values["model_name"])


def with_experiment_text(values: Mapping[str, Any], folder: Path = Path()) -> dict[str, Any]:
    """Replace the file of an Experiment by its text: no step's pod has the file.

    Args:
        values: Parameters of a pipeline; names of bundled Experiments and text stay.
        folder: Where a relative path begins.

    Raises:
        InvalidInput: There is no such file, or it holds no single object of YAML.
    """
    from podium.errors import suggestion
    from podium.manifests.experiment import bundled, load

    given = values.get("experiment")
    if not isinstance(given, str) or "\n" in given or "{" in given:
        return dict(values)
    require(
        given != "", "experiment is a bundled name, a file or YAML", "one of " + ", ".join(bundled()), experiment=""
    )
    file = folder / given
    if file.is_file():
        load(str(file))
        return {**values, "experiment": file.read_text(encoding="utf-8")}
    if given not in bundled():
        raise InvalidInput(f"no file {file} and no bundled experiment {given!r}", suggestion(given, bundled()))
    return dict(values)


def adapted(values: Mapping[str, Any]) -> "Experiment":
    """Return the Experiment that tune_and_promote will run, but for what only its step knows: name, data and output.

    Raises:
        InvalidInput: A count makes no sense for this Experiment, or there is none of this name.
    """
    from podium.manifests.experiment import Experiment
    from podium.manifests.experiment.adapt import adapt, decided

    flags = {"epochs": values["trial_epochs"], "network": values["network"], "seed": values["seed"]}
    most = values["max_trials"]
    changes = {"max_trials": most, "parallel_trials": min(values["parallel_trials"], most),
               "workers": values["trial_workers"]}  # fmt: skip
    fixed = decided(**flags, gpus=values["gpus_per_worker"])
    return adapt(
        Experiment.load(values["experiment"], values["network"]),
        data="data",
        root="output",
        fixed=fixed,
        name="sweep",
        **changes,
    )
