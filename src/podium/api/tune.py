"""Tune any function, script or command: no YAML."""

import inspect
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, Unpack

from podium.api.cluster_spec import ClusterSpec
from podium.api.experiments import free_name
from podium.api.flags_of_script import check_false, unread, with_own_seed
from podium.api.function_source import returned_names
from podium.api.passing import Passing
from podium.api.program import Program, Train
from podium.api.space import Dimension, Value, parameter, split
from podium.api.stopping import Stopping
from podium.api.sweep import Sweep, SweepPlan
from podium.api.trials import TrialReader
from podium.cluster.traits import traits_of
from podium.display.notebook import say
from podium.errors import Conflict, Failed, InvalidInput, suggestion
from podium.manifests.experiment import Experiment, best_trial, check
from podium.manifests.experiment.build import OWN_NAME, with_folds
from podium.manifests.experiment.trainer import DATA, NAME, OUTPUT
from podium.manifests.fields import present
from podium.manifests.labels import ISTIO_INJECT, PUSHES, REUSE
from podium.manifests.options import (
    SweepOptions,
    annotation,
    describe,
    documented,
    prepare,
    read_settings,
    settings as option_settings,
)
from podium.manifests.options.base import Values
from podium.manifests.placement import Pods, place as placed
from podium.manifests.shell import takes_script
from podium.metrics import STRICT_FORMAT
from podium.metrics.goals import Goal
from podium.metrics.libraries import Library, library_of
from podium.search.algorithms import AUTO
from podium.storage import absolute, local_path
from podium.system.arguments import checked, plain
from podium.system.settings import TRAINER_IMAGE, Settings
from podium.training.base import require_at_least
from podium.training.target import with_code

CONTAINER = "training"


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """Settings of a sweep over a program."""

    goal: Goal
    metrics: Sequence[str] = ()
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

    reuse: bool = False
    """Whether a process that has called a function for a trial calls it for the next one, too."""

    passing: str = ""
    """How the program takes its parameters, as Passing reads it."""

    asked: Values = field(default_factory=dict)
    """Settings of sweep options, as read_settings returns them."""

    @classmethod
    def read(
        cls,
        objectives: Sequence[str],
        /,
        *,
        prints: str | None = None,
        image: str = "",
        queue: str = "",
        queue_priority: str = "",
        **settings: Any,
    ) -> Self:
        """Read the settings of a sweep as the shell and Python take them.

        Raises:
            InvalidInput: There is no such setting, or its value breaks a rule.
        """
        first, *further = objectives or [""]
        library = library_of(prints) if prints else None
        own = {setting.name for setting in fields(cls)}
        options = set(option_settings()) - {"objectives", "algorithm"}
        _refuse_unknown(
            {name: value for name, value in settings.items() if name not in own | options}
        )
        asked = {name: settings.pop(name) for name in options & set(settings)}
        if isinstance(settings.get("metrics"), str):
            settings["metrics"] = [settings["metrics"]]
        return cls(
            goal=Goal.read(first, any_name=library is not None),
            prints=library,
            image=image or TRAINER_IMAGE,
            pods=Pods(queue=queue, queue_priority=queue_priority),
            asked=read_settings({**asked, "objectives": further}),
            **{name: plain(value) for name, value in settings.items()},
        )

    def __post_init__(self) -> None:
        require_at_least(self, trials=1, parallel=1)
        if self.seed is not None and "random_state" in (self.settings or {}):
            raise InvalidInput(
                "seed and random_state are the same setting, but both are set", "leave out seed"
            )

    @property
    def formats(self) -> list[str]:
        """metricsFormats of the lines that hold the metrics."""
        return list(self.prints.patterns) if self.prints else [STRICT_FORMAT]


def _experiment_of(
    program: Program,
    searched: Mapping[str, Dimension],
    settings: TuneSettings,
    *,
    passing: Passing,
    fixed: Mapping[str, str],
    stops: Stopping,
    name: str | None,
    data: str | None,
    output: str,
) -> Experiment:
    """Return the Experiment that tunes a program.

    Args:
        fixed: Other parameters of its command as text, the same in all trials.
        stops: Changes for early stopping.
        name: metadata.name; the program's if None.
        data: Directory or URI of the dataset.
        output: URL or directory of the trials' models, each below its trial's name.

    Raises:
        BrokenRules: A value breaks a rule.
    """
    options = {**stops.settings, **present(random_state=settings.seed)}
    job = _job(
        program,
        passing,
        searched,
        fixed,
        settings.image,
        data,
        f"{output}/${{trialParameters.ownName}}",
        unbuffered=stops.reads_along,
    )
    # Else a failed pod's log is gone, and Katib loses what a stopped trial reported.
    retain = program.code is not None or stops.reads_along
    spec = _spec(searched, settings, stops, job, retain=retain)
    asked = prepare(spec, {}, {**settings.asked, "algorithm": stops.algorithm})
    _record_the_latest(spec["objective"])
    spec["algorithm"]["algorithmSettings"] = [
        {"name": key, "value": str(value)} for key, value in options.items()
    ]
    # A program of Hugging Face's Trainer may post its metrics and print none.
    notes = {PUSHES: "true", **({REUSE: "true"} if settings.reuse else {}), **annotation(asked)}
    manifest = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name or _slug(program.name), "annotations": notes},
        "spec": spec,
    }
    experiment = Experiment.parse(manifest)
    if folds := asked.get("folds"):
        experiment = with_folds(experiment, folds)
    wrapped = with_code(experiment, program.code.uri if program.code else "", container=CONTAINER)
    return check(placed(wrapped, settings.pods))


def _spec(
    searched: Mapping[str, Dimension],
    settings: TuneSettings,
    stops: Stopping,
    job: Mapping[str, Any],
    *,
    retain: bool,
) -> dict[str, Any]:
    """Return the spec of an Experiment without what its options add."""
    goal = settings.goal
    others = [name for name in dict.fromkeys(settings.metrics) if name != goal.metric]
    return {
        "objective": {
            "type": "maximize" if goal.maximize else "minimize",
            "objectiveMetricName": goal.metric,
            **({"additionalMetricNames": others} if others else {}),
        },
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
            "retain": retain,
            "trialParameters": [
                *({"name": name, "reference": name} for name in searched),
                {"name": "ownName", "reference": OWN_NAME},
            ],
            "trialSpec": job,
        },
    }


def _record_the_latest(objective: dict[str, Any]) -> None:
    """Have the metrics beside the objective recorded as a trial prints them last: without a
    strategy Katib takes the objective's direction, the largest loss where accuracy is maximized."""
    strategies = objective.get("metricStrategies") or []
    named = {strategy["name"] for strategy in strategies}
    others = [name for name in objective.get("additionalMetricNames") or () if name not in named]
    if others:
        latest = [{"name": name, "value": "latest"} for name in others]
        objective["metricStrategies"] = [*strategies, *latest]


def _job(
    program: Program,
    passing: Passing,
    searched: Mapping[str, Dimension],
    fixed: Mapping[str, str],
    image: str,
    data: str | None,
    output: str,
    *,
    unbuffered: bool,
) -> dict[str, Any]:
    variables = {"PODIUM_OUTPUT": output} | ({"PODIUM_DATA": data} if data else {})
    variables |= (
        {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    )  # lines that come at the end stop nothing
    values = {name: f"${{trialParameters.{name}}}" for name in searched}
    command = [_with_variables(word) for word in program.words]
    fixed = {name: _with_variables(text) for name, text in fixed.items()}
    command_line = passing.words(command, {**fixed, **values})
    variables |= passing.variables({**fixed, **values})
    words = [_quoted(word, values, searched, variables) for word in command_line]
    scripted = any("$PODIUM_VALUE_" in word or word.startswith("$(test ") for word in words)
    if takes_script(words) or scripted or passing.needs_shell:
        # Also a script: else Katib takes all words behind it for parts of it.
        words = ["sh", "-c", passing.script(words)]
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


def _quoted(
    word: str,
    values: Mapping[str, str],
    searched: Mapping[str, Dimension],
    variables: dict[str, str],
) -> str:
    """Quote a word for a shell.

    A choice with an apostrophe, which would end the quotes around it, goes into a variable.
    """
    if word.startswith("$(test "):
        return word
    risky = False
    for number, (name, value) in enumerate(values.items(), 1):
        choices = searched[name].feasible()[1].get("list", ()) if value in word else ()
        if any("'" in choice for choice in choices):
            variables[f"PODIUM_VALUE_{number}"] = value
            parts = [_quote(part) if part else "" for part in word.split(value)]
            return f'"$PODIUM_VALUE_{number}"'.join(parts)
        risky = risky or any(_quote(choice) != choice for choice in choices)
    return _quote(word, risky)


def _quote(word: str, risky: bool = False) -> str:
    """Return a word of a command that Katib hands to a shell: quoted unless it is plain.

    Args:
        word: May hold a placeholder.
        risky: Whether what stands for the placeholder may have to be quoted.
    """
    bare = re.sub(r"\$\{[\w.-]+\}", "", word)
    plain = bare == shlex.quote(bare)
    if plain:
        return f"'{word}'" if risky else word
    return shlex.quote(word)


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


@checked
def tune(
    train: Train,
    space: Mapping[str, Any],
    *,
    objective: str | Sequence[str] | None = None,
    metrics: str | Sequence[str] = (),
    prints: str | None = None,
    trials: int = 20,
    parallel: int = 2,
    algorithm: str = AUTO,
    settings: Mapping[str, object] | None = None,
    stop: str | None = None,
    seed: int | None = None,
    data: Any = None,
    target: str = "",
    cluster: str | Path | None = None,
    storage: str | Path | None = None,
    image: str = TRAINER_IMAGE,
    queue: str = "",
    queue_priority: str = "",
    pickle: bool = False,
    reuse: bool = False,
    passing: str = "",
    name: str | None = None,
    wait: bool = True,
    **options: Unpack[SweepOptions],
) -> Sweep:
    """Search for the best arguments of a function, a script or a command.

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
        metrics: Other metrics to record, as a trial prints them last.
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
            by name, a DataFrame, which are prepared first.
        target: Name of the target column of a DataFrame.
        cluster: ``kubernetes://NAMESPACE``, where packed code runs in the image, or a directory of
            this machine.
        storage: Directory or URI below which trials put their models and code is kept.
        image: Image of the trials, on a cluster.
        queue: Kueue's local queue, in which each trial waits for its turn on a cluster.
        queue_priority: Kueue's WorkloadPriorityClass, with a queue.
        pickle: Hand the function on as cloudpickle writes it, not as source: lambdas and closures
            too, and values that only this process has. Trials need cloudpickle and the same version
            of Python.
        reuse: Keep the processes: one that has called the function for a trial calls it for the
            next one, which begins sooner, with the imports done. A trial that fails, exits or is
            stopped ends its process alone. What the function leaves behind, such as changed globals
            of a module, memory, threads or files, the next trial meets. For functions, on this
            machine.
        passing: How a script or command takes its parameters: ``flags``, ``--name=value``;
            ``hydra``, ``name=value``; ``papermill``, ``-p name value``; ``env``, variables; or
            ``config:FILE``, a YAML, JSON, TOML or other file that the command names and in which
            ``${name}`` stands for a value. In each of them ``${name}`` in a word of the command is
            the value's place, and ``{"augment/--no-augment": None}`` or ``{"amp/": None}`` a flag
            without a value. Empty: flags, or papermill for a notebook.
        name: Name of the sweep; the function's or script's if None.
        wait: Whether to return at the end, or at once while the trials run in the background of
            this process.
        **options: Further settings of the sweep, ``max_time="2h"``,
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
    objective = _objective_of(train) if objective is None else objective
    tune_settings = TuneSettings.read(
        [objective] if isinstance(objective, str) else objective,
        metrics=metrics,
        prints=prints,
        trials=trials,
        parallel=parallel,
        image=image,
        algorithm=algorithm,
        settings=settings,
        stop=stop,
        seed=seed,
        pickle=pickle,
        reuse=reuse,
        passing=passing,
        queue=queue,
        queue_priority=queue_priority,
        **options,
    )
    if data is not None or target:
        from podium.api.prepare import prepared  # which loads numpy and pyarrow

        data = prepared(data, target)
    begun = plan(
        train,
        space,
        tune_settings,
        spec=ClusterSpec.of(cluster),
        data=data,
        storage=storage,
        name=name,
    ).start()
    return _waited(begun) if wait else begun


def _refuse_unknown(unknown: Mapping[str, Any]) -> None:
    for name, value in unknown.items():
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
        raise InvalidInput(
            f"the function returns {', '.join(names)}; only one of them can be tuned", hint
        )
    return names[0] if len(names) == 1 else "accuracy"


def _waited(begun: Sweep) -> Sweep:
    """Wait for a sweep; a failed one is returned, too, if some of its trials have a result."""
    try:
        return begun.wait()
    except Failed:
        if best_trial(begun.cluster.trials(begun.name)) is None:
            raise
    opened = f"podium.open_sweep({begun.name!r})"
    say(TrialReader(begun.cluster, begun.name).warning(logs=f"{opened}.logs('TRIAL')"))
    return begun


def _slug(name: str) -> str:
    """Return a name that is valid in Kubernetes, at most 30 characters."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-")
    return plain if plain[:1].isalpha() else f"sweep-{plain}".strip("-")


_ARGUMENTS = [name for name in inspect.signature(tune).parameters if name != "options"]
tune.__doc__ = documented(tune.__doc__)


@dataclass(frozen=True, kw_only=True)
class TunePlan(SweepPlan):
    """The sweep that tune is about to start."""

    space: Mapping[str, str]
    """What is searched, by the flag's name: ``1 to 3``."""

    passing: Passing
    words: tuple[str, ...]
    """The command without its parameters."""

    fixed: Mapping[str, str]
    """Parameters that are the same in all trials."""

    before: str = ""
    """What precedes the command where a shell runs it as a trial did."""

    def summary(self) -> dict[str, Any]:
        """Return in plain values what starts: the command of each trial, and the search."""
        experiment = self.experiment
        (_, container), *_ = experiment.template.workload.containers()
        return {
            "command": shlex.join(container.words),
            "directory": os.getcwd(),
            "cluster": self.spec.url,
            "objective": str(experiment.objective),
            "space": dict(self.space),
            "algorithm": experiment.search.name,
            "trials": experiment.limits.max_trials,
            "parallel": experiment.limits.parallel,
            "asked": describe(experiment),
        }

    def command_line(self, parameters: Mapping[str, Any]) -> str:
        """Return a line that says how the program runs with a trial's parameters."""
        values = {name: str(value) for name, value in parameters.items()}
        return self.before + self.passing.shown(self.words, {**self.fixed, **values})

    def checked_name(self) -> str:
        """Check that it can start now, and return the name that the Experiment would get.

        Raises:
            InvalidInput: There is no dataset where it would be.
            Conflict: Its name is taken.
        """
        with closing(self.spec.open()) as cluster:
            name = self.ready(cluster).name
            if free_name(cluster, "Experiment", name) != name:
                raise Conflict(
                    f"Experiment {name} exists in {cluster.url}",
                    "choose another name, or delete it first",
                )
        return name


def plan(
    train: Train,
    space: Mapping[str, Any],
    settings: TuneSettings,
    *,
    spec: ClusterSpec,
    data: str | Path | None = None,
    storage: str | Path | None = None,
    name: str | None = None,
) -> TunePlan:
    """Plan a sweep and print its search space; on Kubernetes the code is stored now.

    Raises:
        InvalidInput: As tune; or there is no storage that the cluster can reach.
    """
    searched, fixed = split(space)
    stops = Stopping.read(
        settings.stop,
        settings.algorithm,
        settings.settings or {},
        searched,
        fixed,
        settings.goal.metric,
    )
    program = Program.of(
        train,
        searched,
        fixed,
        settings.goal.metric,
        pickle=settings.pickle,
        has_data=bool(data),
    )
    shared = traits_of(spec.url).shares_files
    if settings.reuse and not (program.call and shared):
        unsupported = "a script or command" if shared else f"{spec.url}, where each trial has a pod"
        hint = "leave reuse out" if shared else "pool=4 keeps pods there"
        raise InvalidInput(
            f"reuse=True is for functions on this machine, not for {unsupported}", hint
        )
    passing = Passing.read(settings.passing, program.words, searched, fixed)
    if passing.way == "flags" and not program.call:
        check_false(program.words, {**searched, **fixed})
    location = absolute(data) if data else None
    texts = _arguments(program, passing, fixed, location)
    home = Settings.from_environment().home
    if shared:
        program, root = program.here(home), absolute(storage) if storage else str(home)
    else:
        root = _remote(storage)
        program = program.packed(root)
    output = f"{root}/trials"
    experiment = _experiment_of(
        program,
        searched,
        settings,
        passing=passing,
        fixed=texts,
        stops=stops,
        name=name,
        data=location,
        output=output,
    )
    _announce(settings, searched, {} if program.call else fixed, stops, program, passing)
    return TunePlan(
        experiment=experiment,
        spec=spec,
        space={name: str(dimension) for name, dimension in searched.items()},
        passing=passing,
        words=tuple(word.replace(OUTPUT, "output") for word in program.words),
        fixed={name: text.replace(OUTPUT, "output") for name, text in texts.items()},
        before=_before([*program.words, *texts.values()], location),
        output=output,
        data=data,
        exact=name is not None,
    )


def _before(named: Sequence[str], data: str | None) -> str:
    """Return what precedes a command that trains as a trial did: the directory of the model and the
    variables, where the command or its script mentions them.

    Args:
        named: Words of the command.
        data: Directory or URI of the dataset.
    """
    files = [word for word in named if word.endswith((".py", ".sh")) and os.path.isfile(word)]
    said = [*named, *(Path(file).read_text("utf-8", "replace") for file in files)]
    places = {"PODIUM_OUTPUT": '"$PWD"/output'}
    places |= {"PODIUM_DATA": shlex.quote(data)} if data else {}
    variables = [
        f"{name}={place}" for name, place in places.items() if any(name in text for text in said)
    ]
    made = any(OUTPUT in word for word in named) or "PODIUM_OUTPUT=" in " ".join(variables)
    return " ".join([*(["mkdir -p output &&"] if made else []), *variables, ""]).lstrip()


def _arguments(
    program: Program, passing: Passing, fixed: Mapping[str, Value], data: str | None
) -> dict[str, str]:
    """Return what a command gets in all trials, by name: fixed parameters and the dataset.

    Raises:
        InvalidInput: It names a dataset that is not there, or a function is passed something else
            than arguments.
    """
    if program.call:
        if passing.way != "flags":
            hint = "leave passing out; a script or a command may take them in another way"
            raise InvalidInput("a function gets its parameters as arguments", hint)
        return {}
    texts = {name: str(value) for name, value in fixed.items()}
    named = [*program.words, *texts.values()]
    if not data and any(DATA in word for word in named):
        hint = "--data DIRECTORY, or data="
        raise InvalidInput(f"the command names {DATA}, but no data is given", hint)
    asked = any("${podium." in word or "PODIUM_" in word for word in named)
    return texts | ({"data": data} if data and passing.takes_data and not asked else {})


def _announce(
    settings: TuneSettings,
    searched: Mapping[str, Dimension],
    fixed: Mapping[str, Value],
    stops: Stopping,
    program: Program,
    passing: Passing,
) -> None:
    library, metric = settings.prints, settings.goal.metric
    if library and library.training.fullmatch(metric):
        say(
            f"warning: {library.name} measures {metric} on training data; {library.metric} is one of validation data"
        )
    say(
        f"{settings.goal}: {'; '.join(f'{name} {dimension}' for name, dimension in searched.items())}"
    )
    if fixed:  # a misspelt option of podium's is one of them
        say(
            f"the same in all trials: {', '.join(f'{name} {each}' for name, each in fixed.items())}"
        )
    if stops.text:
        say(f"{settings.stop}: {stops.text}")
    if lost := unread(program.words, passing.way, [*searched, *fixed]):
        say(f"warning: {lost}")
    seed, has_seed = settings.seed, "seed" in {**searched, **fixed}
    if seed is not None and not has_seed and (script := with_own_seed(program.words)):
        say(f"warning: seed {seed} is the search's; {script} has a --seed of its own")
        say(f'  hint: --param seed={seed}, in Python {{"seed": {seed}}}, passes it on')


def _remote(storage: str | Path | None) -> str:
    text = str(storage or "")
    if not text or local_path(text) is not None:
        problem = f"the cluster's pods cannot read code from {text or 'this machine'}, nor write models there"
        raise InvalidInput(problem, "name a storage: s3://BUCKET/PREFIX")
    return text.rstrip("/")
