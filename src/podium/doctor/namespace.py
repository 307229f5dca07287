"""Examine a live namespace for everything that an Experiment needs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podium.cluster.kubernetes.api import Api, webhook_hint
from podium.cluster.kubernetes.leadership import ENGINE_LEASE
from podium.cluster.kubernetes.pods import not_run
from podium.display.terminal import doing
from podium.doctor.probes import CONFIG_MAP, KATIB, TRAINERS, NamespaceSnapshot, see
from podium.doctor.report import Report
from podium.manifests.labels import METRICS_INJECTION
from podium.manifests.pod_security import ENFORCE, RESTRICTED
from podium.manifests.rules import Rules, Violation, apply
from podium.system.pod import load_configuration

PATIENCE = 5.0
"""Seconds for which all requests together are retried: a server that does not answer is a finding,
not something to wait for."""

NAMESPACE_RULES = Rules[NamespaceSnapshot]()
rule = NAMESPACE_RULES.rule


def _fine(message: str, where: str) -> Violation:
    return Violation(message, where, level="pass")


def _unread(
    message: str, where: str, hint: str = "ask with more rights", level: str = "warn"
) -> Violation:
    return Violation(message, where, hint, level=level)


@rule("fail", "Everything is looked for in the namespace.")
def _namespace_exists(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"namespace {snapshot.namespace}"
    if snapshot.exists is False:
        yield Violation(f"{where} does not exist", where, f"kubectl create {where}")
    elif snapshot.exists:
        yield _fine(f"{where} exists", where)


@rule(
    "fail",
    "Katib 0.19 refuses Experiments in other namespaces, and older ones collect no metrics there.",
)
def _injection_label(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"namespace {snapshot.namespace}"
    if snapshot.exists is False or not snapshot.katib:
        return
    hint = f"kubectl label {where} {METRICS_INJECTION}=enabled"
    if snapshot.namespace in _homes_of_katib(snapshot):
        # There the label would have it wait for itself, see guards_itself.
        hint = f"let trials run in a namespace of their own, deploy/teams, and label that: {METRICS_INJECTION}=enabled"
    if snapshot.labels is None:
        yield _unread("the namespace's labels may not be read", where, f"make sure: {hint}")
    elif (label := snapshot.labels.get(METRICS_INJECTION, "missing")) == "enabled":
        yield _fine(f"{METRICS_INJECTION} is enabled", where)
    else:
        yield Violation(f"{METRICS_INJECTION} is {label}", where, hint)


@rule("warn", "Katib's webhook is asked about every pod of a namespace with its label.")
def _guards_itself(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where, labels = f"namespace {snapshot.namespace}", snapshot.labels or {}
    is_home = snapshot.namespace in _homes_of_katib(snapshot)
    if is_home and labels.get(METRICS_INJECTION) == "enabled":
        problem = f"while Katib's controller is away no pod can be created in {snapshot.namespace}, its own included"
        unlock = f"kubectl label {where} {METRICS_INJECTION}-"
        hint = f"launch into a namespace of its own (deploy/team); to let the controller start again: {unlock}"
        yield Violation(problem, where, hint)


def _homes_of_katib(snapshot: NamespaceSnapshot) -> set[str]:
    running = snapshot.controllers or ()
    return {each.namespace for each in running if each.name == "katib-controller"}


@rule("fail", "The API server takes only kinds that it knows.", where="custom resources")
def _kinds_known(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    unknown = snapshot.unknown_kinds
    distributed = [kind for kind in TRAINERS if kind not in unknown]
    if not distributed:
        problem = f"the server knows neither {' nor '.join(TRAINERS)}"
        hint = "install the Kubeflow training operator 1.9, or Kubeflow Trainer 2.2 or later"
        yield Violation(problem, hint=hint)
    if "Job" in unknown:
        hint = "check that the address is that of a Kubernetes API server"
        yield Violation("the server does not know Job", hint=hint)
    elif distributed:
        kinds = [kind for kind in (*TRAINERS, "Experiment", "Trial") if kind not in unknown]
        yield Violation(f"known: {', '.join(kinds)}", level="pass")


@rule(
    "note",
    "The loop of a sweep then runs in its step or command, and its trials are jobs of the namespace.",
    where="custom resources",
    hint="kubectl apply -k deploy/engine lets people apply Experiments too",
)
def _no_experiments(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if "Experiment" in snapshot.unknown_kinds:
        yield Violation(
            "the server has no Experiments: whoever starts a sweep runs it, the step or the command"
        )


@rule(
    "warn",
    "Those that are applied stay as they are for good, and whoever asks for a sweep runs it.",
)
def _experiments_run(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"Lease {ENGINE_LEASE}"
    if snapshot.katib or "Experiment" in snapshot.unknown_kinds:
        return
    if snapshot.engine is None:
        problem = "who runs the namespace's Experiments may not be read"
        yield _unread(problem, where, level="note")
    elif snapshot.engine:
        yield _fine(f"podium-engine runs the Experiments of {snapshot.namespace}", where)
    else:
        problem, hint = not_run(snapshot.namespace)
        yield Violation(problem, where, hint)


@rule("fail", "Objects without their controller stay as they are for good.")
def _controllers_run(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.controllers is None:
        hint = "ask an administrator whether the training operator runs, and Katib"
        yield _unread("Deployments may not be listed", "controllers", hint, level="note")
        return
    running = {controller.name: controller for controller in snapshot.controllers}
    trainers = [name for kind, name in TRAINERS.items() if kind not in snapshot.unknown_kinds]
    trainers = [name for name in trainers if name in running] or trainers[:1]
    for name in (*(KATIB if snapshot.katib else ()), *trainers):
        if name not in running:
            hint = "install it, unless it runs under another name"
            yield Violation(f"no Deployment {name}", "controllers", hint, level="warn")
            continue
        home, where = running[name].namespace, f"namespace {running[name].namespace}"
        if running[name].ready:
            yield _fine(f"{name} is ready", where)
        else:
            hint = f"kubectl -n {home} describe deployment {name}"
            yield Violation(f"{name} has no replica that is ready", where, hint)


@rule("fail", "Steps create jobs and experiments, watch them and read their logs.")
def _rights(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"rights of {snapshot.who}"
    if snapshot.missing is None:
        hint = "ask as an administrator, or as the account itself"
        yield _unread(f"the {where} may not be asked for", where, hint)
    elif snapshot.missing:
        hint = "kubectl apply -k deploy, or bind the Role podium-steps"
        yield Violation(f"missing: {', '.join(snapshot.missing)}", where, hint)
    else:
        yield _fine("jobs, sweeps, pods and logs: all that is needed", where)


@rule(
    "fail",
    "Steps learn from it where models and data lie; the keys are in a Secret.",
    where=f"ConfigMap {CONFIG_MAP}",
)
def _storage_configured(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    storage, where = snapshot.storage, f"ConfigMap {CONFIG_MAP}"
    if storage is None:
        yield _unread(f"{where} may not be read", where)
        return
    if not storage:
        yield Violation(f"there is no {where}", hint="kubectl apply -k deploy", level="warn")
        return
    name = storage.get("secret", "")
    wanted = [storage.get("access-key", "accesskey"), storage.get("secret-key", "secretkey")]
    lacking = [key for key in wanted if key not in (snapshot.secret_keys or ())]
    if not name:
        problem = "it names no Secret: jobs reach the bucket by their service account alone"
        yield Violation(problem, where, level="note")
    elif snapshot.secret_keys is None:
        yield _unread(f"Secret {name} may not be read", where)
    elif not snapshot.secret_keys:
        hint = f"create it with keys {' and '.join(wanted)}, or name another in {where}"
        yield Violation(f"there is no Secret {name}", hint=hint)
    elif lacking:
        problem = f"Secret {name} has no {', '.join(lacking)}"
        yield Violation(problem, hint="add it, or correct the names")
    else:
        yield _fine(f"Secret {name} has {' and '.join(wanted)}", where)


@rule(
    "fail",
    "Trials and steps keep models and data there.",
    hint=f"correct the endpoint in {CONFIG_MAP}",
)
def _storage_reachable(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.endpoint:
        well, message = snapshot.endpoint
        where = f"endpoint {(snapshot.storage or {}).get('endpoint')}"
        yield _fine(message, where) if well else Violation(message, where)


@rule(
    "fail",
    "Steps and trials fail at their first read or write.",
    hint=f"podium storage check s3://… --create makes it; or correct {CONFIG_MAP} and its Secret",
)
def _bucket_exists(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.bucket and not (snapshot.endpoint and not snapshot.endpoint[0]):
        well, message = snapshot.bucket
        where = f"bucket {(snapshot.storage or {}).get('bucket')}"
        level = "warn" if well is None else None
        yield _fine(message, where) if well else Violation(message, where, level=level)


@rule("warn", "They fail when they open s3://…: they have no identity.")
def _storage_credentials(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    secret = (snapshot.storage or {}).get("secret") or "…"
    for name in snapshot.bare:
        hint = f"set AWS_ENDPOINT_URL, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from Secret {secret}"
        yield Violation(f"pods of {name} use s3:// and are given no credentials", name, hint)


@rule(
    "warn",
    "The namespace's Pod Security level decides which pods the API server takes.",
    where=f"label {ENFORCE}={RESTRICTED}",
    hint="see docs/cluster-teams.md on what the training operator and Katib need; podium's engine needs nothing",
)
def _pod_security(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if (snapshot.labels or {}).get(ENFORCE) == RESTRICTED:
        yield Violation(
            "pods without a full securityContext are refused; podium's have one, controllers' containers lack it"
        )


@rule(
    "fail",
    "A pod that a quota or policy refuses is in no list of pods, only in events; its job waits.",
    hint="a quota, a limit range or Pod Security of the namespace: change the pods' requests, or the policy",
)
def _pods_refused(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.refusals is None:
        problem = "events may not be listed: refused pods go unnoticed"
        yield _unread(problem, "events", "ask with the right to list events", level="note")
    for kind, name, message in snapshot.refusals or ():
        yield Violation(message, f"{kind} {name}", webhook_hint(message))


@rule("warn", "They wait for something that somebody must provide.")
def _pods_that_cannot_start(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    for trouble in snapshot.troubles:
        yield Violation(f"{trouble.reason}: {trouble.message}", f"pod {trouble.pod}", trouble.hint)


@rule(
    "fail",
    "The server's own webhooks were asked by a dry run.",
    hint="correct the manifest, or the rights",
)
def _server_admits(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    for name, refusal in (snapshot.admitted or {}).items():
        if refusal is None:
            yield _fine(f"the server would take {name}", name)
        else:
            yield Violation(refusal, name, webhook_hint(refusal))


def examine_namespace(
    namespace: str,
    *,
    context: str | None = None,
    account: str | None = None,
    manifests: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """Look at a namespace of a live cluster; nothing is changed.

    Args:
        context: The kubeconfig's; its current one if None.
        account: A service account whose rights to ask for; one's own if None.
        manifests: Objects to offer to the server as a dry run.

    Raises:
        PodiumError: No cluster is configured, or it does not answer.
    """
    configuration, _ = load_configuration(context)
    api = Api(configuration, namespace)
    api.budget = PATIENCE
    try:
        with doing(lambda: f"waiting for the API server to {api.asking}"):
            snapshot = see(api, account=account, manifests=manifests)
    finally:
        api.close()
    return Report(
        subject=f"{api.host}: namespace {namespace}",
        kind="namespace",
        findings=apply(NAMESPACE_RULES, snapshot),
    )
