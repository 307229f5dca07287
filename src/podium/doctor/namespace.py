"""Examine a live namespace for everything that an Experiment needs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podium.cluster.kubernetes.api import webhook_hint
from podium.cluster.kubernetes.leadership import ENGINE_LEASE
from podium.cluster.kubernetes.pods import not_run
from podium.display.terminal import doing
from podium.doctor.report import Report
from podium.doctor.snapshot import CONFIG_MAP, KATIB, TRAINERS, NamespaceSnapshot
from podium.manifests.labels import METRICS_INJECTION
from podium.manifests.pod_security import ENFORCE
from podium.manifests.rules import Rules, Violation, apply

PATIENCE = 5.0

_REFUSED = "a quota, a limit range or Pod Security of the namespace: change the pods' requests, or the policy"

NAMESPACE_RULES = Rules[NamespaceSnapshot]()
rule = NAMESPACE_RULES.rule

_HINTS = {
    "PyTorchJob": "install the Kubeflow training operator 1.9, or Kubeflow Trainer 2.2 or later",
    "Job": "check that the address is that of a Kubernetes API server",
}


def _fine(what: str, where: str) -> Violation:
    return Violation(what, where, level="pass")


@rule("fail", "Everything is looked for in the namespace.")
def _namespace_exists(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"namespace {snapshot.namespace}"
    if snapshot.exists is False:
        yield Violation(
            f"namespace {snapshot.namespace} does not exist",
            where,
            f"kubectl create namespace {snapshot.namespace}",
        )
    elif snapshot.exists:
        yield _fine(f"namespace {snapshot.namespace} exists", where)


@rule(
    "fail",
    "Katib 0.19 refuses Experiments in other namespaces, and older ones collect no metrics there.",
)
def _injection_label(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"namespace {snapshot.namespace}"
    if snapshot.exists is False or not snapshot.katib:
        return
    if snapshot.namespace in _homes_of_katib(
        snapshot
    ):  # where the label would have it wait for itself, see guards_itself
        hint = f"let trials run in a namespace of their own, deploy/teams, and label that: {METRICS_INJECTION}=enabled"
    else:
        hint = f"kubectl label namespace {snapshot.namespace} {METRICS_INJECTION}=enabled"
    if snapshot.labels is None:
        yield Violation(
            "the namespace's labels may not be read", where, f"make sure: {hint}", level="warn"
        )
    elif snapshot.labels.get(METRICS_INJECTION) == "enabled":
        yield _fine(f"{METRICS_INJECTION} is enabled", where)
    else:
        yield Violation(
            f"{METRICS_INJECTION} is {snapshot.labels.get(METRICS_INJECTION, 'missing')}",
            where,
            hint,
        )


@rule("warn", "Katib's webhook is asked about every pod of a namespace with its label.")
def _guards_itself(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if (
        snapshot.namespace in _homes_of_katib(snapshot)
        and (snapshot.labels or {}).get(METRICS_INJECTION) == "enabled"
    ):
        what = f"while Katib's controller is away no pod can be created in {snapshot.namespace}, its own included"
        unlock = f"kubectl label namespace {snapshot.namespace} {METRICS_INJECTION}-"
        hint = f"launch into a namespace of its own (deploy/team); to let the controller start again: {unlock}"
        yield Violation(what, f"namespace {snapshot.namespace}", hint)


def _homes_of_katib(snapshot: NamespaceSnapshot) -> set[str]:
    return {
        running.namespace
        for running in snapshot.controllers or ()
        if running.name == "katib-controller"
    }


@rule("fail", "The API server takes only kinds that it knows.")
def _kinds_known(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    distributed = [kind for kind in TRAINERS if kind not in snapshot.unknown_kinds]
    unknown = [
        kind for kind in snapshot.unknown_kinds if kind not in (*TRAINERS, "Experiment", "Trial")
    ]
    if not distributed:
        what = f"the server knows neither {' nor '.join(TRAINERS)}"
        yield Violation(what, "custom resources", _HINTS["PyTorchJob"])
    for kind in unknown:
        yield Violation(f"the server does not know {kind}", "custom resources", _HINTS[kind])
    if distributed and not unknown:
        known = [
            *distributed,
            *(kind for kind in ("Experiment", "Trial") if kind not in snapshot.unknown_kinds),
        ]
        yield _fine(f"known: {', '.join(known)}", "custom resources")


@rule(
    "note",
    "The loop of a sweep then runs in its step or command, and its trials are jobs of the namespace.",
)
def _no_experiments(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if "Experiment" in snapshot.unknown_kinds:
        what = (
            "the server has no Experiments: whoever starts a sweep runs it, the step or the command"
        )
        yield Violation(
            what,
            "custom resources",
            "kubectl apply -k deploy/engine lets people apply Experiments too",
        )


@rule(
    "warn",
    "Those that are applied stay as they are for good, and whoever asks for a sweep runs it.",
)
def _experiments_run(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.katib or "Experiment" in snapshot.unknown_kinds:
        return
    where = f"Lease {ENGINE_LEASE}"
    if snapshot.engine is None:
        what = "who runs the namespace's Experiments may not be read"
        yield Violation(what, where, "ask with more rights", level="note")
    elif snapshot.engine:
        yield _fine(f"podium-engine runs the Experiments of {snapshot.namespace}", where)
    else:
        what, hint = not_run(snapshot.namespace)
        yield Violation(what, where, hint)


@rule("fail", "Objects without their controller stay as they are for good.")
def _controllers_run(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.controllers is None:
        hint = "ask an administrator whether the training operator runs, and Katib"
        yield Violation("Deployments may not be listed", "controllers", hint, level="note")
        return
    running = {controller.name: controller for controller in snapshot.controllers}
    trainers = [name for kind, name in TRAINERS.items() if kind not in snapshot.unknown_kinds]
    trainers = [name for name in trainers if name in running] or trainers[:1]
    for name in (*(KATIB if snapshot.katib else ()), *trainers):
        if name not in running:
            hint = "install it, unless it runs under another name"
            yield Violation(f"no Deployment {name}", "controllers", hint, level="warn")
        elif not running[name].ready:
            where = f"namespace {running[name].namespace}"
            hint = f"kubectl -n {running[name].namespace} describe deployment {name}"
            yield Violation(f"{name} has no replica that is ready", where, hint)
        else:
            yield _fine(f"{name} is ready", f"namespace {running[name].namespace}")


@rule("fail", "Steps create jobs and experiments, watch them and read their logs.")
def _rights(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"rights of {snapshot.who}"
    if snapshot.missing is None:
        hint = "ask as an administrator, or as the account itself"
        yield Violation(
            f"the rights of {snapshot.who} may not be asked for", where, hint, level="warn"
        )
    elif snapshot.missing:
        hint = "kubectl apply -k deploy, or bind the Role podium-steps"
        yield Violation(f"missing: {', '.join(snapshot.missing)}", where, hint)
    else:
        yield _fine("jobs, sweeps, pods and logs: all that is needed", where)


@rule("fail", "Steps learn from it where models and data lie; the keys are in a Secret.")
def _storage_configured(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    where = f"ConfigMap {CONFIG_MAP}"
    if snapshot.storage is None:
        yield Violation(f"{where} may not be read", where, "ask with more rights", level="warn")
        return
    if not snapshot.storage:
        yield Violation(f"there is no {where}", where, "kubectl apply -k deploy", level="warn")
        return
    name = snapshot.storage.get("secret", "")
    wanted = [
        snapshot.storage.get("access-key", "accesskey"),
        snapshot.storage.get("secret-key", "secretkey"),
    ]
    if snapshot.secret_keys is None:
        yield Violation(
            f"Secret {name} may not be read", where, "ask with more rights", level="warn"
        )
        return
    lacking = [key for key in wanted if key not in snapshot.secret_keys]
    if not snapshot.secret_keys:
        hint = f"create it with keys {' and '.join(wanted)}, or name another in {where}"
        yield Violation(f"there is no Secret {name}", where, hint)
    elif lacking:
        yield Violation(
            f"Secret {name} has no {', '.join(lacking)}", where, "add it, or correct the names"
        )
    else:
        yield _fine(f"Secret {name} has {' and '.join(wanted)}", where)


@rule("fail", "Trials and steps keep models and data there.")
def _storage_reachable(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.endpoint is None:
        return
    well, what = snapshot.endpoint
    where = f"endpoint {(snapshot.storage or {}).get('endpoint')}"
    yield (
        _fine(what, where)
        if well
        else Violation(what, where, f"correct the endpoint in {CONFIG_MAP}")
    )


@rule("fail", "Steps and trials fail at their first read or write.")
def _bucket_exists(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.bucket is None or (snapshot.endpoint and not snapshot.endpoint[0]):
        return
    well, what = snapshot.bucket.well, snapshot.bucket.what
    where = f"bucket {(snapshot.storage or {}).get('bucket')}"
    if well:
        yield _fine(what, where)
    else:
        hint = (
            f"podium storage check s3://… --create makes it; or correct {CONFIG_MAP} and its Secret"
        )
        yield Violation(what, where, hint, level="warn" if well is None else None)


@rule(
    "note",
    "Several concurrent writers are told that they won; podium notices and uses lock objects instead.",
)
def _store_checks_before_it_stores(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    known = re.search(
        r"SeaweedFS.* (\d+)\.(\d+)$", snapshot.bucket.server if snapshot.bucket else ""
    )
    if known and (int(known[1]), int(known[2])) < (4, 18):
        where = f"endpoint {(snapshot.storage or {}).get('endpoint')}"
        what = f"SeaweedFS {known[1]}.{known[2]} checks the condition of a write before it stores"
        hint = "upgrade SeaweedFS to 4.18 or later; `podium storage check s3://…` tries what holds"
        yield Violation(what, where, hint)


@rule("warn", "They fail when they open s3://…: they have no identity.")
def _storage_credentials(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    secret = (snapshot.storage or {}).get("secret") or "…"
    for name in snapshot.bare:
        hint = f"set AWS_ENDPOINT_URL, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from Secret {secret}"
        yield Violation(f"pods of {name} use s3:// and are given no credentials", name, hint)


@rule("warn", "The namespace's Pod Security level decides which pods the API server takes.")
def _pod_security(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if (level := (snapshot.labels or {}).get(ENFORCE, "privileged")) == "restricted":
        what = "pods without a full securityContext are refused; podium's have one, controllers' containers lack it"
        hint = "see docs/cluster-teams.md on what the training operator and Katib need; podium's engine needs nothing"
        yield Violation(what, f"label {ENFORCE}={level}", hint)


@rule(
    "fail",
    "A pod that a quota or policy refuses is in no list of pods, only in events; its job waits.",
)
def _pods_refused(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    if snapshot.refusals is None:
        hint = "ask with the right to list events"
        yield Violation(
            "events may not be listed: refused pods go unnoticed", "events", hint, level="note"
        )
    for refusal in snapshot.refusals or ():
        hint = webhook_hint(refusal.message) or _REFUSED
        yield Violation(refusal.message, f"{refusal.kind} {refusal.name}", hint)


@rule("warn", "They wait for something that somebody must provide.")
def _pods_that_cannot_start(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    for trouble in snapshot.troubles:
        yield Violation(f"{trouble.reason}: {trouble.message}", f"pod {trouble.pod}", trouble.hint)


@rule("fail", "The server's own webhooks were asked by a dry run.")
def _server_admits(snapshot: NamespaceSnapshot) -> Iterator[Violation]:
    for name, refusal in (snapshot.admitted or {}).items():
        if refusal is None:
            yield _fine(f"the server would take {name}", name)
        else:
            yield Violation(
                refusal, name, webhook_hint(refusal) or "correct the manifest, or the rights"
            )


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
    from podium.cluster.kubernetes.api import Api
    from podium.doctor.probes import see
    from podium.system.pod import load_configuration

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
