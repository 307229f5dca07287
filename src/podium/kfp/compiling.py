"""Compile pipelines to YAML for a Kubeflow cluster.

Platform settings are kfp-kubernetes', for servers that know them (2.16; 2.0.5 fails on all but
retries).
"""

import functools
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.code.bundle import Bundle
from podium.errors import InvalidInput, require
from podium.kfp.code import store_code, with_code
from podium.kfp.definition import Definition, constants, reaching
from podium.kfp.importing import import_kfp
from podium.kfp.parameters import Parameters
from podium.kfp.project import Project, ServerSettings, check_reachable, read_given
from podium.kfp.values import check_values, experiment_text, rename, with_experiment_text
from podium.system.settings import STEPS_IMAGE, TRAINER_IMAGE

_POLICIES = ("Always", "IfNotPresent", "Never")
_SECRET_KEYS = {"accesskey": "AWS_ACCESS_KEY_ID", "secretkey": "AWS_SECRET_ACCESS_KEY"}
"""Keys of the Secret of KFP's own store, and the variables that S3 clients read."""


def _configure(
    task: Any,
    secret: str = "",
    timeout: int = 0,
    retries: int = 0,
    pull_policy: str = "",
    tolerations: list = [],  # noqa: B006  the signature is the table of settings
    non_root: bool = False,
) -> None:
    """Add settings to a task of a pipeline.

    Args:
        task: A ``kfp.dsl.PipelineTask``.
        secret: Secret with the keys accesskey and secretkey, each step's S3 credentials.
        timeout: Deadline of a step's pod in seconds.
        retries: Number of retries of a failed step; a retried step adopts the job it launched
            before.
        pull_policy: Always, IfNotPresent or Never.
        tolerations: Tolerations of each step's pod, as in [{"key": "spot", "operator": "Exists",
            "effect": "NoSchedule"}].
        non_root: Whether steps say that they never run as root, as a namespace that enforces Pod
            Security restricted demands. The rest of it the server adds by itself from 2.16 on
            (kubeflow/pipelines 2.16.1, backend/src/v2/compiler/argocompiler/security_context.go).
    """
    from kfp import kubernetes

    if secret:
        kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env=_SECRET_KEYS)
    if timeout:
        kubernetes.set_timeout(task, timeout)
    if retries:
        # Up to three minutes between retries, so that they outlast a short outage.
        task.set_retry(
            num_retries=retries,
            backoff_duration="10s",
            backoff_factor=2.0,
            backoff_max_duration="180s",
        )
    if pull_policy:
        kubernetes.set_image_pull_policy(task, pull_policy)
    if non_root:
        kubernetes.set_security_context(task, run_as_non_root=True)
    for toleration in tolerations:
        kubernetes.add_toleration(
            task,
            key=toleration.get("key"),
            operator=toleration.get("operator", "Equal"),
            value=toleration.get("value"),
            effect=toleration.get("effect"),
            toleration_seconds=toleration.get("tolerationSeconds"),
        )


def _read_settings(words: Sequence[str]) -> dict[str, Any]:
    """Read settings as ``name=value``.

    Raises:
        InvalidInput: There is no such setting, or its value breaks a rule.
    """
    settings = Parameters(Parameters.of(_configure)[1:]).read(words)
    for name in ("timeout", "retries"):
        require(settings.get(name, 1) >= 1, f"{name} >= 1", **{name: settings.get(name)})
    policy = settings.get("pull_policy", "Always")
    if policy not in _POLICIES:
        raise InvalidInput(f"no pull_policy is called {policy!r}", f"one of {', '.join(_POLICIES)}")
    names = ("key", "operator", "value", "effect", "tolerationSeconds")
    for toleration in settings.get("tolerations", []):
        if not isinstance(toleration, dict) or not toleration.keys() <= set(names):
            raise InvalidInput(
                f"not a toleration: {toleration!r}", f"an object of {', '.join(names)}"
            )
    return settings


def _configured(pipeline: Any, settings: Mapping[str, Any]) -> Any:
    """Return a copy of the pipeline with the settings on each of its tasks.

    Args:
        pipeline: A ``kfp.dsl`` GraphComponent.
        settings: Result of _read_settings.
    """
    from kfp import dsl
    from kfp.dsl.pipeline_context import Pipeline

    function: Callable[..., Any] = pipeline.pipeline_func

    @functools.wraps(function)  # which takes its pipeline_root along
    def with_settings(*args: Any, **kwargs: Any) -> Any:
        outputs = function(*args, **kwargs)
        for task in Pipeline.get_default_pipeline().tasks.values():
            if task.pipeline_spec:
                raise InvalidInput(
                    f"--platform does not reach the steps of {task.name}, a pipeline inside",
                    "set them on its tasks by kfp.kubernetes, and leave --platform out",
                )
            if not task.importer_spec:
                _configure(task, **settings)
        return outputs

    return dsl.pipeline(
        name=pipeline.name,
        description=pipeline.description,
        display_name=pipeline.pipeline_spec.pipeline_info.display_name or None,
        pipeline_config=pipeline.pipeline_config,
    )(with_settings)


REQUESTS = {
    "cpuRequest": 0.1, "resourceCpuRequest": "100m",
    "memoryRequest": 0.268435456, "resourceMemoryRequest": "256Mi",
}  # fmt: skip
"""Requests of a step that asks for nothing itself: mostly it waits. Servers before 2.4 read the
numbers (cores, GB), later ones the text, as kfp 2.17 writes both."""


def compile_pipeline(
    name: str,
    words: Sequence[str] = (),
    *,
    steps_image: str | None = None,
    trainer_image: str | None = None,
    platform: Sequence[str] = (),
    project: Project | None = None,
    title: str | None = None,
) -> str:
    """Compile a pipeline to KFP v2 YAML: one document, which old servers take too; platform
    settings add a second.

    Args:
        name: Name of the pipeline, or ``FILE.py``, see podium.kfp.definition.Definition.load.
        words: Parameters as ``name=value``, the defaults of the compiled pipeline; the path of an
            Experiment's file is replaced by its text.
        steps_image: Image of the steps; the one the components name if None.
        trainer_image: Image of podium's own trainer; the one the components name if None.
        platform: Settings for kfp-kubernetes as ``name=value``, see
            podium.kfp.compiling._configure.
        project: Project with the parameters, name and images that are not given otherwise.
        title: Name of the compiled pipeline; the project's if None, else the pipeline's own.

    Raises:
        InvalidInput: Unknown pipeline, parameter or setting, or an invalid image name.
    """
    import_kfp()
    from kfp.compiler import Compiler

    definition = Definition.load(name)
    if definition.pipeline is None:
        raise InvalidInput(f"{name} is compiled already", f"podium upload {name}")
    pipeline, (values, code) = definition.pipeline, _defaults(definition, words, project)
    own = project.server if project else ServerSettings()
    steps_image, trainer_image = steps_image or own.steps_image, trainer_image or own.trainer_image
    for image in filter(None, (steps_image, trainer_image)):
        if not re.fullmatch(r"\w[\w./:@-]*", image):
            raise InvalidInput(f"not the name of an image: {image!r}", "for example host/name:tag")
    settings = _read_settings(platform)
    if settings:
        pipeline = _configured(pipeline, settings)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "pipeline.yaml")
        Compiler().compile(pipeline, str(file), pipeline_parameters=_on_one_line(values))
        images = {
            STEPS_IMAGE: steps_image or STEPS_IMAGE,
            TRAINER_IMAGE: trainer_image or TRAINER_IMAGE,
        }
        text = _finished(
            file.read_text(), values, images, title or (project.title if project else "")
        )
    store_code(code)
    return text


def _defaults(
    definition: Definition, words: Sequence[str], project: Project | None
) -> tuple[dict[str, Any], dict[str, Bundle]]:
    """Return the defaults to compile: those given, Experiments as text, and text that kfp would not
    escape.

    And the code to store, which they name by its URI.
    """
    parameters, given = definition.parameters, read_given(words, definition.parameters, project)
    values = parameters.with_defaults(given)
    texts = with_experiment_text(values, names=reaching(definition.spec, "experiment"))
    texts, code = with_code(texts, reaching(definition.spec, "code"))
    if definition.ours:
        check_reachable(texts)
        check_values(texts)
    odd = {
        name for name, value in texts.items() if isinstance(value, str) and not value.isprintable()
    }
    chosen = {
        name: value
        for name, value in texts.items()
        if name in given or name in odd or value != values[name]
    }
    return chosen, code


def _on_one_line(values: Mapping[str, Any]) -> dict[str, Any]:
    """Escape line breaks and control characters: kfp repeats the defaults in a comment without
    escaping them."""
    return {
        name: json.dumps(value)[1:-1]
        if isinstance(value, str) and not value.isprintable()
        else value
        for name, value in values.items()
    }


def _finished(text: str, values: Mapping[str, Any], images: Mapping[str, str], title: str) -> str:
    """Set the name, the real defaults, images and requests in compiled YAML, and every task's name
    to its key.

    KFP 2.0.5 looks up the producer of an artifact by its display name (observed).
    """
    import yaml

    from podium.files.yaml_loader import Dumper, load_dumped

    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    documents = load_dumped(text)
    root = documents[0]["root"]
    if title:
        rename(documents[0], title)
    for name, value in values.items():
        if isinstance(value, str):
            root["inputDefinitions"]["parameters"][name]["defaultValue"] = value
    for holder in constants(documents[0], "experiment"):
        holder["constant"] = experiment_text(holder["constant"])
    for component in documents[0]["components"].values():
        if own := component.get("inputDefinitions", {}).get("parameters", {}).get("podium_image"):
            own["defaultValue"] = images.get(own["defaultValue"], own["defaultValue"])
    for holder in constants(documents[0], "podium_image"):
        holder["constant"] = images.get(holder["constant"], holder["constant"])
    for executor in documents[0].get("deploymentSpec", {}).get("executors", {}).values():
        if container := executor.get("container"):
            container["image"] = images.get(container["image"], container["image"])
            container.setdefault("resources", dict(REQUESTS))
    for group in (root, *documents[0]["components"].values()):
        for key, task in group.get("dag", {}).get("tasks", {}).items():
            task["taskInfo"]["name"] = key
    return head + str(yaml.dump_all(documents, Dumper=Dumper, sort_keys=True))
