"""Platform settings by kfp-kubernetes, for servers that know them (2.16; 2.0.5 fails on all but
retries)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podium.errors import InvalidInput, require

POLICIES = ("Always", "IfNotPresent", "Never")
SECRET_KEYS = {"accesskey": "AWS_ACCESS_KEY_ID", "secretkey": "AWS_SECRET_ACCESS_KEY"}
"""Keys of the Secret of KFP's own store, and the variables that S3 clients read."""


def configure(
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
        kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env=SECRET_KEYS)
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


def read_settings(words: Sequence[str]) -> dict[str, Any]:
    """Read settings as ``name=value``.

    Raises:
        InvalidInput: There is no such setting, or its value breaks a rule.
    """
    from podium.kfp.parameters import parameters_of, read_parameters

    settings = read_parameters(words, parameters_of(configure)[1:])
    for name in ("timeout", "retries"):
        require(settings.get(name, 1) >= 1, f"{name} >= 1", **{name: settings.get(name)})
    policy = settings.get("pull_policy", "Always")
    if policy not in POLICIES:
        raise InvalidInput(f"no pull_policy is called {policy!r}", f"one of {', '.join(POLICIES)}")
    names = ("key", "operator", "value", "effect", "tolerationSeconds")
    for toleration in settings.get("tolerations", []):
        if not isinstance(toleration, dict) or not toleration.keys() <= set(names):
            raise InvalidInput(
                f"not a toleration: {toleration!r}", f"an object of {', '.join(names)}"
            )
    return settings


def configured(pipeline: Any, settings: Mapping[str, Any]) -> Any:
    """Return a copy of the pipeline with the settings on each of its tasks.

    Args:
        pipeline: A ``kfp.dsl`` GraphComponent.
        settings: Result of read_settings.
    """
    from kfp import dsl
    from kfp.dsl.pipeline_context import Pipeline

    function: Callable[..., None] = pipeline.pipeline_func

    @functools.wraps(function)
    def with_settings(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        for task in Pipeline.get_default_pipeline().tasks.values():
            configure(task, **settings)

    return dsl.pipeline(name=pipeline.name, description=pipeline.description)(with_settings)
