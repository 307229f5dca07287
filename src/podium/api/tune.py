"""Tune any function, script or command: no YAML."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from podium.api.cluster_spec import ClusterSpec
from podium.api.function_source import returned_names
from podium.api.prepare import prepared
from podium.api.program import Program, Train, program_of, quoted, slug
from podium.api.space import Dimension, parameter, split
from podium.api.stopping import Stopping, stopping
from podium.api.sweep import Sweep, begin
from podium.api.trials import partly_failed
from podium.cluster.traits import traits_of
from podium.code.wrap import with_code
from podium.errors import Failed, InvalidInput, require, suggestion
from podium.libraries import Library, library_of
from podium.manifests.experiment import Experiment, best_trial, check
from podium.manifests.experiment.build import OWN_NAME
from podium.manifests.experiment.shell import takes_script
from podium.manifests.experiment.trainer import DATA, NAME, OUTPUT
from podium.manifests.fields import present
from podium.manifests.labels import ISTIO_INJECT
from podium.manifests.options import SweepOptions, annotation, documented, prepare, read_settings
from podium.manifests.options import settings as option_settings
from podium.manifests.options.base import Values
from podium.manifests.options.objectives import Goal
from podium.manifests.placement import Pods
from podium.manifests.placement import place as placed
from podium.metrics import STRICT_FORMAT
from podium.notebook import say
from podium.search.auto import AUTO
from podium.settings import Settings
from podium.storage import absolute, local_path
from podium.training.target import TRAINER_IMAGE

CONTAINER = "training"


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """Settings of a sweep over a program."""

    goal: Goal
    metrics: Sequence[str] = ()
    """Other metrics to record."""

    prints: Library | None = None
    """Library that prints the metrics; None for ``name=value``."""

    trials: int = 20
    parallel: int = 2
    """Trials at a time; lowered to the number of trials."""

    algorithm: str = AUTO
    settings: Mapping[str, object] | None = None
    """algorithmSettings by name."""

    stop: str | None = None
    """Early stopping of trials that make no progress: ``median`` or ``asha``."""

    seed: int | None = None
    image: str = TRAINER_IMAGE
    pods: Pods = field(default_factory=Pods)
    """Settings of the trials' pods, such as their queue."""

    pickle: bool = False
    """Whether a function goes to its trials as cloudpickle writes it."""

    asked: Values = field(default_factory=dict)
    """Settings of sweep options, as read_settings returns them."""

    def __post_init__(self) -> None:
        require(
            isinstance(self.trials, int) and self.trials >= 1, "trials >= 1", trials=self.trials
        )
        require(
            isinstance(self.parallel, int) and self.parallel >= 1,
            "parallel >= 1",
            parallel=self.parallel,
        )

    @property
    def formats(self) -> list[str]:
        """metricsFormats of the lines that hold the metrics."""
        return list(self.prints.patterns) if self.prints else [STRICT_FORMAT]


def experiment_of(
    program: Program,
    searched: Mapping[str, Dimension],
    settings: TuneSettings,
    *,
    stops: Stopping | None = None,
    name: str | None = None,
    data: str | None = None,
    output: str,
) -> Experiment:
    """Return the Experiment that tunes a program.

    Args:
        stops: Changes for early stopping.
        name: metadata.name; the program's if None.
        data: Directory or URI of the dataset.
        output: URL or directory of the trials' models, each below its trial's name.

    Raises:
        BrokenRules: A value breaks a rule.
    """
    goal = settings.goal
    stops = stops or Stopping(algorithm=settings.algorithm, settings=settings.settings or {})
    given = {**stops.settings, **present(random_state=settings.seed)}
    objective = {
        "type": "maximize" if goal.maximize else "minimize",
        "objectiveMetricName": goal.metric,
        **({"additionalMetricNames": list(settings.metrics)} if settings.metrics else {}),
    }
    spec = {
        "objective": objective,
        **stops.spec,
        "maxTrialCount": settings.trials,
        "parallelTrialCount": min(settings.parallel, settings.trials),
        "maxFailedTrialCount": min(settings.trials, max(3, settings.trials // 4)),
        "resumePolicy": "LongRunning",
        "metricsCollectorSpec": {
            "collector": {"kind": "StdOut"},
            "source": {"filter": {"metricsFormat": settings.formats}},
        },
        "parameters": [parameter(name, dimension) for name, dimension in searched.items()],
        "trialTemplate": {
            "primaryContainerName": CONTAINER,
            # Else nobody could read why a pod on a cluster failed, and Katib loses what a stopped trial reported.
            "retain": program.code is not None or stops.reads_along,
            "trialParameters": [
                *({"name": name, "reference": name} for name in searched),
                {"name": "ownName", "reference": OWN_NAME},
            ],
            "trialSpec": _job(
                program,
                searched,
                settings.image,
                data,
                f"{output}/${{trialParameters.ownName}}",
                unbuffered=stops.reads_along,
            ),
        },
    }
    asked = prepare(spec, {}, {**settings.asked, "algorithm": stops.algorithm})
    spec["algorithm"]["algorithmSettings"] = [
        {"name": key, "value": str(value)} for key, value in given.items()
    ]
    metadata = {
        "name": name or slug(program.name),
        **present(annotations=annotation(asked) or None),
    }
    manifest = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": metadata,
        "spec": spec,
    }
    wrapped = with_code(
        Experiment.parse(manifest), program.code.uri if program.code else "", container=CONTAINER
    )
    return check(placed(wrapped, settings.pods))


def _job(
    program: Program,
    searched: Mapping[str, Dimension],
    image: str,
    data: str | None,
    output: str,
    *,
    unbuffered: bool,
) -> dict[str, Any]:
    flags = list[str]()
    variables = {"PODIUM_OUTPUT": output} | ({"PODIUM_DATA": data} if data else {})
    variables |= (
        {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    )  # lines that come at the end stop nothing
    for number, (name, dimension) in enumerate(searched.items(), 1):
        value, choices = f"${{trialParameters.{name}}}", dimension.feasible()[1].get("list", ())
        if any("'" in choice for choice in choices):  # which would end the quotes around it
            variables[f"PODIUM_VALUE_{number}"] = value
            flags.append(f'{quoted(f"--{name}=")}"$PODIUM_VALUE_{number}"')
        else:
            flags.append(
                quoted(f"--{name}={value}", any(quoted(choice) != choice for choice in choices))
            )
    given = [f"--data={data}"] if data and program.takes_data else []
    words = [*map(quoted, [_with_variables(word) for word in (*program.words, *given)]), *flags]
    if takes_script(words) or any("$PODIUM_VALUE_" in flag for flag in flags):
        words = [
            "sh",
            "-c",
            " ".join(words),
        ]  # else Katib takes all words behind a script for parts of it
    container = {
        "name": CONTAINER,
        "image": image,
        "command": words,
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        **({"workingDir": program.folder} if program.folder else {}),
    }
    template = {
        "metadata": {"labels": {ISTIO_INJECT: "false"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"backoffLimit": 0, "template": template},
    }


def _with_variables(word: str) -> str:
    """Replace podium's placeholders by Kubernetes' variables: a pipeline sets them to other
    values."""
    variables = {
        DATA: "$(PODIUM_DATA)",
        OUTPUT: "$(PODIUM_OUTPUT)",
        NAME: "${trialParameters.ownName}",
    }
    for placeholder, variable in variables.items():
        word = word.replace(placeholder, variable)
    return word


def tune(
    train: Train,
    space: Mapping[str, Any],
    *,
    objective: str | Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    prints: str | None = None,
    trials: int = 20,
    parallel: int = 2,
    algorithm: str = AUTO,
    settings: Mapping[str, object] | None = None,
    stop: str | None = None,
    seed: int | None = None,
    data: Any = None,
    cluster: str | Path | None = None,
    storage: str | Path | None = None,
    image: str = TRAINER_IMAGE,
    queue: str = "",
    queue_priority: str = "",
    pickle: bool = False,
    name: str | None = None,
    wait: bool = True,
    **options: Unpack[SweepOptions],
) -> Sweep:
    """Search the best arguments of a function, a script or a command.

    Args:
        train: A function, called in a process of its own with the values as keywords; it returns
            its metrics (a number, or numbers by name) or prints metric lines; a parameter ``data``
            or ``output`` gets the dataset and the place for its model. Or the path of a script, or
            a command as words: they get ``--name=value``.
        space: ``(low, high)``, ``[…]`` for choices, ``range(1, 5)``, Float, Int, Choice, or a value
            that is the same in all trials. Floats whose range spans two decades or more are
            searched on a log scale.
        objective: Metric to search for, ``accuracy`` or ``min:loss``; without a direction the name
            decides. Or several, of which the first decides about the best trial: ``["accuracy",
            "min:latency_ms"]``. None: the only name in the dict that a function returns, else
            ``accuracy``.
        metrics: Other metrics to record.
        prints: The library whose lines hold the metrics, as it prints them: ``huggingface``,
            ``lightning``, ``keras``, ``xgboost``, ``lightgbm``, ``catboost`` or ``sklearn``;
            ``colon`` for lines such as ``Accuracy: 0.93``.
        parallel: Trials at a time.
        algorithm: ``auto``, podium's choice by the space and the number of trials; or ``tpe``,
            ``random``, ``grid``, ``cmaes``, ``sobol`` … as Katib calls them.
        settings: Settings of the algorithm.
        stop: Early stopping of trials that make no progress. ``median`` stops one that is worse
            than the others after three lines of the objective, so the program prints one for each
            epoch, a function by ``podium.report``; ``asha`` gives few epochs to all and more to the
            best, and needs a range such as ``"epochs": (1, 27)``.
        seed: Seed of the algorithm.
        data: A dataset, its directory or URI: a script gets it as ``--data``. Or ``(X, y)``, arrays
            by name, which are prepared first.
        cluster: ``kubernetes://NAMESPACE``, where packed code runs in the image, or a directory of
            this machine.
        storage: Directory or URI below which trials put their models and code is kept.
        image: Image of the trials, on a cluster.
        queue: Kueue's local queue, in which each trial waits for its turn on a cluster.
        queue_priority: Kueue's WorkloadPriorityClass, with a queue.
        pickle: Hand the function on as cloudpickle writes it, not as source: lambdas and closures
            too, and values that only this process has. Trials need cloudpickle and the same version
            of Python.
        name: Name of the sweep; the function's or script's if None.
        wait: Whether to return at the end, or at once while the trials run in the background of
            this process.
        **options: What else a sweep can be asked, ``max_time="2h"``,
            ``constraints=["latency_ms<=20"]`` …: listed below.

    Raises:
        InvalidInput: The function does not take these arguments, or a value breaks a rule; nothing
            was started.
        Failed: Too many trials failed, and none has a result; else the sweep is returned, with a
            warning.

    Example:
        >>> import podium
        >>> def train(x, shape): return {"score": (x - 1) ** 2 + (shape == "square")}
        >>> sweep = podium.tune(train, {"x": (0.0, 2.0), "shape": ["round", "square"]}, objective="min:score", trials=5)
        >>> len(sweep.results)
        5
    """
    _refuse_unknown(options)
    objective = _objective_of(train) if objective is None else objective
    first, *further = [objective] if isinstance(objective, str) else objective or [""]
    library = library_of(prints) if prints else None
    given = TuneSettings(
        goal=Goal.read(first, any_name=library is not None),
        metrics=metrics,
        prints=library,
        trials=trials,
        parallel=parallel,
        image=image,
        algorithm=algorithm,
        settings=settings,
        stop=stop,
        seed=seed,
        pickle=pickle,
        pods=Pods(queue=queue, queue_priority=queue_priority),
        asked=read_settings({**options, "objectives": further}),
    )
    data = None if data is None else prepared(data)
    begun = plan(
        train, space, given, spec=ClusterSpec.of(cluster), data=data, storage=storage, name=name
    ).start()
    return _waited(begun) if wait else begun


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    """Refuse arguments that tune does not have, with a suggestion; some of Optuna's names are
    known."""
    for name, value in given.items():
        if name in option_settings() and name not in ("objectives", "algorithm"):
            continue
        others = {
            "n_trials": "trials",
            "max_trials": "trials",
            "n_jobs": "parallel",
            "timeout": "max_time",
        }
        hint = (
            f"write {others[name]}={value!r:.20}"
            if name in others
            else suggestion(name, [*_ARGUMENTS, *option_settings()])
        )
        if name == "direction":
            hint = f'the objective has it: objective="{str(value)[:3]}:NAME"'
        raise InvalidInput(f"tune has no argument {name!r}", hint)


def _objective_of(train: Train) -> str:
    """Return the default objective: the only name that a function returns, else accuracy.

    Raises:
        InvalidInput: It returns several, and none is accuracy.
    """
    names = returned_names(train) if callable(train) else []
    if len(names) > 1 and "accuracy" not in names:
        hint = f'name one: objective="{Goal.read(names[0], any_name=True).direction}:{names[0]}"'
        raise InvalidInput(f"the function returns {', '.join(names)}; one of them is tuned", hint)
    return names[0] if len(names) == 1 else "accuracy"


def _waited(begun: Sweep) -> Sweep:
    """Wait for a sweep; a failed one is returned, too, if some of its trials have a result."""
    try:
        return begun.wait()
    except Failed:
        if best_trial(begun.cluster.trials(begun.name)) is None:
            raise
    opened = f"podium.open_sweep({begun.name!r})"
    say(partly_failed(begun.cluster, begun.name, logs=f"{opened}.logs('TRIAL')"))
    return begun


_ARGUMENTS = [name for name in inspect.signature(tune).parameters if name != "options"]
tune.__doc__ = documented(tune.__doc__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The Experiment that tune is about to start, and where it runs."""

    experiment: Experiment
    spec: ClusterSpec

    words: tuple[str, ...]
    """The command that a trial's flags follow."""

    output: str
    """Directory or URL of the trials' models, each below its trial's name."""

    data: str | Path | None
    exact: bool
    """Whether the Experiment's name must be free; else a number is appended to a name that is
    taken."""

    def start(self) -> Sweep:
        """Create the Experiment and return at once.

        Raises:
            Conflict: There is one of this name.
        """
        return begin(
            self.experiment, self.spec, exact=self.exact, data=self.data, output=self.output
        )


def plan(
    train: Train,
    space: Mapping[str, Any],
    settings: TuneSettings,
    *,
    spec: ClusterSpec,
    data: str | Path | None = None,
    storage: str | Path | None = None,
    name: str | None = None,
) -> Plan:
    """Plan a sweep and print its search space; on Kubernetes the code is stored now.

    Raises:
        InvalidInput: As tune; or there is no storage that the cluster can reach.
    """
    searched, fixed = split(space)
    stops = stopping(
        settings.stop,
        settings.algorithm,
        settings.settings or {},
        searched,
        fixed,
        settings.goal.metric,
    )
    program = program_of(train, searched, fixed, settings.goal.metric, pickle=settings.pickle)
    home = Settings.from_environment().home
    if traits_of(spec.url).shares_files:
        program, root = program.here(home), absolute(storage) if storage else str(home)
    else:
        root = _remote(storage)
        program = program.packed(root)
    given, output = absolute(data) if data else None, f"{root}/trials"
    if not given and any(DATA in word for word in program.words):
        raise InvalidInput(
            f"the command names {DATA}, but no data is given", "--data DIRECTORY, or data="
        )
    experiment = experiment_of(
        program, searched, settings, stops=stops, name=name, data=given, output=output
    )
    flags = (f"--data={given}",) if given and program.takes_data else ()
    library, metric = settings.prints, settings.goal.metric
    if library and library.training.fullmatch(metric):
        say(
            f"warning: {library.name} measures {metric} on training data; {library.metric} is one of validation data"
        )
    say(
        f"{settings.goal}: {'; '.join(f'{name} {dimension}' for name, dimension in searched.items())}"
    )
    if stops.text:
        say(f"{settings.stop}: {stops.text}")
    words = tuple(word.replace(OUTPUT, "output") for word in (*program.words, *flags))
    return Plan(
        experiment=experiment,
        spec=spec,
        words=words,
        output=output,
        data=data,
        exact=name is not None,
    )


def _remote(storage: str | Path | None) -> str:
    text = str(storage or "")
    if not text or local_path(text) is not None:
        problem = f"the cluster's pods cannot read code from {text or 'this machine'}, nor write models there"
        raise InvalidInput(problem, "name a storage: s3://BUCKET/PREFIX")
    return text.rstrip("/")
