"""A live namespace: each rule by itself, then all of it against a small HTTP server that speaks the API."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from test_doctor_manifests import GOOD

from podium.cluster.kubernetes.pods import Trouble
from podium.doctor.namespace import NAMESPACE_RULES, examine_namespace
from podium.doctor.probes import RIGHTS, NamespaceSnapshot, _Controller
from podium.doctor.report import Report
from podium.doctor.store import answers
from podium.errors import PodiumError
from podium.manifests.labels import METRICS_INJECTION as INJECTION
from podium.manifests.pod_security import ENFORCE
from podium.manifests.rules import Finding, apply

ROOT = Path(__file__).parent.parent.parent


def levels(**seen: Any) -> dict[str, str]:
    """Apply every rule to what was seen; the worst level by rule."""
    found: dict[str, str] = {}
    for finding in apply(NAMESPACE_RULES, NamespaceSnapshot(namespace="team", **seen)):
        found.setdefault(finding.rule, finding.level)
    return found


def test_the_namespace_must_be_there() -> None:
    assert levels()["namespace-exists"] == "pass"
    assert levels(exists=False)["namespace-exists"] == "fail"


def test_the_label_must_be_enabled() -> None:
    assert levels(labels={INJECTION: "enabled"})["injection-label"] == "pass"
    assert levels(labels={INJECTION: "disabled"})["injection-label"] == "fail"
    assert levels(labels={})["injection-label"] == "fail"
    assert levels(labels=None)["injection-label"] == "warn", "it may not be read"


def test_katibs_own_namespace_is_a_dangerous_place_for_trials() -> None:
    (katib,) = controllers = [_Controller(name="katib-controller", namespace="team", ready=1)]
    assert levels(labels={INJECTION: "enabled"}, controllers=controllers)["guards-itself"] == "warn"
    assert "guards-itself" not in levels(labels={}, controllers=controllers)
    found = apply(
        NAMESPACE_RULES, NamespaceSnapshot(namespace="team", labels={}, controllers=controllers)
    )
    (missing,) = (finding for finding in found if finding.rule == "injection-label")
    assert "kubectl label namespace team" not in str(missing.hint)
    elsewhere = [replace(katib, namespace="kubeflow")]
    assert "guards-itself" not in levels(labels={INJECTION: "enabled"}, controllers=elsewhere)


def test_every_kind_must_be_known() -> None:
    assert levels()["kinds-known"] == "pass"
    assert levels(unknown_kinds=["Job"])["kinds-known"] == "fail"


def test_a_cluster_without_katib_is_well() -> None:
    operator = [_Controller(name="training-operator", namespace="kubeflow", ready=1)]
    found = levels(katib=False, labels={}, controllers=operator, engine=True)
    assert "injection-label" not in found
    assert (found["kinds-known"], found["controllers-run"], found["experiments-run"]) == (
        "pass",
        "pass",
        "pass",
    )
    bare = levels(
        katib=False, labels={}, controllers=operator, unknown_kinds=["Experiment", "Trial"]
    )
    assert (bare["kinds-known"], bare["no-experiments"], bare["controllers-run"]) == (
        "pass",
        "note",
        "pass",
    )


def test_an_engine_elsewhere_runs_nothing_of_a_namespace() -> None:
    engine = [_Controller(name="podium-engine", namespace="kubeflow", ready=1)]
    assert levels(katib=False, controllers=engine, engine=False)["experiments-run"] == "warn"
    assert levels(katib=False, engine=None)["experiments-run"] == "note", "it may not be read"
    assert "experiments-run" not in levels(katib=True, engine=False)


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
def test_one_kind_of_distributed_job_is_enough(kind: str) -> None:
    assert levels(unknown_kinds=[kind])["kinds-known"] == "pass"
    assert levels(unknown_kinds=["PyTorchJob", "TrainJob"])["kinds-known"] == "fail"
    katib = [
        _Controller(name=name, namespace="kubeflow", ready=1)
        for name in ("katib-controller", "katib-db-manager")
    ]
    other = "kubeflow-trainer-controller-manager" if kind == "PyTorchJob" else "training-operator"
    running = _Controller(name=other, namespace="kubeflow-system", ready=1)
    assert levels(unknown_kinds=[kind], controllers=[*katib, running])["controllers-run"] == "pass"
    assert levels(unknown_kinds=[kind], controllers=katib)["controllers-run"] == "warn"


def test_controllers_must_be_ready() -> None:
    ready = [
        _Controller(name=name, namespace="kubeflow", ready=1)
        for name in ("katib-controller", "katib-db-manager")
    ]
    operator = _Controller(name="training-operator", namespace="kubeflow", ready=0)
    assert levels(controllers=ready)["controllers-run"] == "warn", "one is not found"
    assert levels(controllers=[*ready, operator])["controllers-run"] == "fail"
    assert levels(controllers=None)["controllers-run"] == "note"


def test_every_right_must_be_there() -> None:
    assert levels()["rights"] == "pass"
    assert levels(missing=["create pytorchjobs"])["rights"] == "fail"
    assert levels(missing=None)["rights"] == "warn"


def test_the_rights_asked_for_are_those_that_deploy_grants() -> None:
    documents = yaml.safe_load_all((ROOT / "deploy" / "base" / "steps.yaml").read_text())
    role = next(
        document
        for document in documents
        if document["kind"] == "Role" and document["metadata"]["name"] == "podium-steps"
    )
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        (group, resource, verb) for group, resource, verbs in RIGHTS for verb in verbs
    }


def test_the_storage_s_secret_must_have_its_keys() -> None:
    storage = {"secret": "store", "access-key": "user", "secret-key": "password"}
    assert levels(storage=storage, secret_keys=["password", "user"])["storage-configured"] == "pass"
    assert levels(storage=storage, secret_keys=["user"])["storage-configured"] == "fail"
    assert levels(storage=storage, secret_keys=[])["storage-configured"] == "fail"
    assert levels(storage=storage, secret_keys=None)["storage-configured"] == "warn"
    assert levels(storage={"endpoint": "http://minio:9000"})["storage-configured"] == "note"
    assert levels(storage={})["storage-configured"] == "warn"
    assert levels(storage=None)["storage-configured"] == "warn"


def test_somebody_must_be_behind_the_storage_s_endpoint() -> None:
    assert levels(endpoint=(True, "1 pod"))["storage-reachable"] == "pass"
    assert levels(endpoint=(False, "no pods"))["storage-reachable"] == "fail"
    assert "storage-reachable" not in levels(endpoint=None)


def test_pods_that_cannot_start_are_pointed_out() -> None:
    trouble = Trouble(
        pod="p-0", container="main", reason="ImagePullBackOff", message="no", hint="check the name"
    )
    assert levels(troubles=[trouble])["pods-that-cannot-start"] == "warn"


def test_the_server_has_the_last_word_on_a_manifest() -> None:
    assert levels(admitted={"Experiment a": None})["server-admits"] == "pass"
    assert levels(admitted={"Experiment a": "denied"})["server-admits"] == "fail"


class Namespace(BaseHTTPRequestHandler):
    """Answers what ``world`` says for a path; 403 for what it holds as None, 404 for a text and the rest."""

    world: dict[str, Any]
    denied: set[str]
    signed: list[str]
    store = "MinIO"

    def version_string(self) -> str:
        return self.store

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if "/proxy/" in path:
            self.answer_as_store(path.partition("/proxy/")[2])
        elif path not in self.world:
            self.answer(404, {"kind": "Status", "code": 404, "message": f"{path} not found"})
        elif self.world[path] is None:
            self.answer(403, {"kind": "Status", "code": 403, "message": "forbidden"})
        else:
            said = self.world[path]
            self.answer(404 if isinstance(said, str) else 200, said)

    do_HEAD = do_GET

    def answer_as_store(self, bucket: str) -> None:
        """Answer as an S3 server does, with the error that the world holds for a bucket."""
        self.signed.append(self.path)
        code, status = self.world.get(f"bucket {bucket}", ("NoSuchBucket", 404))
        self.answer(status, f"<Error><Code>{code}</Code></Error>")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["kind"].endswith("AccessReview"):
            wanted = body["spec"]["resourceAttributes"]
            right = f"{wanted['verb']} {'/'.join(filter(None, [wanted['resource'], wanted.get('subresource')]))}"
            right = f"{right} {wanted.get('name', '')}".strip()
            who = body["spec"].get("user", "me")
            self.answer(
                201,
                {
                    **body,
                    "status": {
                        "allowed": right not in self.denied and f"{who}: {right}" not in self.denied
                    },
                },
            )
        elif away := self.world.get("webhook away"):
            away.append(body["kind"])
            url = "https://katib-controller.kubeflow.svc:443/mutate-pod?timeout=10s"
            said = f'failed to call webhook: Post "{url}": dial tcp 10.0.0.9:443: connect: connection refused'
            message = f'Internal error occurred: failed calling webhook "mutator.pod.katib.kubeflow.org": {said}'
            self.answer(500, {"kind": "Status", "code": 500, "message": message})
        elif "dryRun=All" not in self.path:
            self.answer(500, {"message": "the doctor must not change anything"})
        elif body["metadata"]["name"] == "refused":
            self.answer(
                400,
                {
                    "kind": "Status",
                    "code": 400,
                    "message": "admission webhook denied the request: goal",
                },
            )
        else:
            self.answer(201, body)

    def answer(self, code: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def kinds(*names: str) -> dict[str, Any]:
    resources = [
        {
            "name": f"{name.lower()}s",
            "kind": name,
            "namespaced": True,
            "singularName": "",
            "verbs": [],
        }
        for name in names
    ]
    return {"kind": "APIResourceList", "groupVersion": "g/v", "resources": resources}


def deployment(name: str) -> dict[str, Any]:
    spec = {"selector": {}, "template": {}}
    return {
        "metadata": {"name": name, "namespace": "kubeflow"},
        "spec": spec,
        "status": {"readyReplicas": 1},
    }


def listed(*objects: Any) -> dict[str, Any]:
    """Return a list as the API server answers it."""
    return {"metadata": {"resourceVersion": "1"}, "items": list(objects)}


def healthy() -> dict[str, Any]:
    """Return every answer of a cluster in which all is well."""
    team = "/api/v1/namespaces/team"
    secret = {"accesskey": "aHVzaA==", "secretkey": "aHVzaA=="}
    node = {
        "metadata": {"name": "n"},
        "status": {"images": [{"names": ["docker.io/library/trainer:1.0"]}]},
    }
    deployments = [
        deployment(name) for name in ("katib-controller", "katib-db-manager", "training-operator")
    ]
    return {
        team: {"metadata": {"name": "team", "labels": {INJECTION: "enabled"}}},
        "/apis/kubeflow.org/v1": kinds("PyTorchJob"),
        "/apis/kubeflow.org/v1beta1": kinds("Experiment", "Trial", "Suggestion"),
        "/apis/batch/v1": kinds("Job", "CronJob"),
        "/apis/apps/v1/deployments": {"items": deployments},
        f"{team}/configmaps/podium-storage": {
            "data": {
                "endpoint": "http://minio-service:9000",
                "bucket": "models",
                "secret": "store",
            },
        },
        "bucket models": ("", 200),
        f"{team}/events": {"items": []},
        "/apis/kubeflow.org/v1beta1/namespaces/team/experiments": listed(),
        "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs": listed(),
        "/apis/batch/v1/namespaces/team/jobs": listed(),
        f"{team}/secrets/store": {"data": secret},
        f"{team}/endpoints/minio-service": {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]},
        f"{team}/pods": {"items": []},
        "/api/v1/nodes": {"items": [node]},
    }


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Namespace]]:
    """A running server in which all is well; KUBECONFIG points at it."""
    handler = type("Bound", (Namespace,), {"world": healthy(), "denied": set(), "signed": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    config = tmp_path / "kubeconfig"
    url = f"http://127.0.0.1:{server.server_address[1]}"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "other",
                "clusters": [
                    {"name": "test", "cluster": {"server": url}},
                    {"name": "off", "cluster": {"server": "http://127.0.0.1:9"}},
                ],
                "users": [{"name": "me", "user": {"token": "a"}}],
                "contexts": [
                    {
                        "name": "test",
                        "context": {"cluster": "test", "user": "me", "namespace": "team"},
                    },
                    {"name": "other", "context": {"cluster": "off", "user": "me"}},
                ],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def examine(**options: Any) -> Report:
    return examine_namespace("team", context="test", **options)


def bad(report: Report) -> dict[str, Finding]:
    """Return the findings of a report that are not mere passes."""
    return {finding.rule: finding for finding in report.findings if finding.level != "pass"}


def test_a_healthy_namespace_passes_every_check(api: type[Namespace]) -> None:
    api.world["/api/v1/namespaces/team"]["metadata"]["labels"][ENFORCE] = "baseline"
    report = examine(manifests=[with_credentials()])
    assert bad(report) == {}
    assert report.verdict == "pass"
    silent = {
        "pod-security",
        "pods-that-cannot-start",
        "pods-refused",
        "storage-credentials",
        "guards-itself",
        "no-experiments",
        "experiments-run",
        "store-checks-before-it-stores",
    }
    assert {finding.rule for finding in report.findings} == {
        rule.name for rule in NAMESPACE_RULES
    } - silent


def with_credentials() -> dict[str, Any]:
    """Return an Experiment whose trials are told who they are."""
    manifest: dict[str, Any] = yaml.safe_load(GOOD)
    (container,) = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ]
    key = {"secretKeyRef": {"name": "store", "key": "accesskey"}}
    container["env"] = [{"name": "AWS_ACCESS_KEY_ID", "valueFrom": key}]
    return manifest


@pytest.mark.parametrize(
    ("code", "status", "level", "said"),
    [
        ("NoSuchBucket", 404, "fail", "the store has no bucket models"),
        ("InvalidAccessKeyId", 403, "fail", "the store does not know the access key"),
        ("AccessDenied", 403, "fail", "the store denies access to bucket models"),
        ("SlowDown", 503, "warn", "bucket models could not be asked for (SlowDown)"),
    ],
)
def test_a_bucket_that_cannot_be_used_is_found(
    code: str, status: int, level: str, said: str, api: type[Namespace]
) -> None:
    api.world["bucket models"] = (code, status)
    finding = bad(examine())["bucket-exists"]
    assert (finding.level, finding.what) == (level, said)


def test_the_store_is_asked_with_the_secrets_key(api: type[Namespace]) -> None:
    examine()
    (path,) = api.signed
    assert path.startswith(
        "/api/v1/namespaces/team/services/minio-service:9000/proxy/models?list-type=2&max-keys=1&prefix=&"
    )
    assert "X-Amz-Credential=hush%2F" in path
    assert "X-Amz-Signature=" in path
    api.world["/api/v1/namespaces/team/configmaps/podium-storage"]["data"]["storage"] = (
        "s3://models/vision"
    )
    examine()
    assert "&prefix=vision%2F&" in api.signed[-1]


def test_pods_refused_lately_are_found_in_the_events(api: type[Namespace]) -> None:
    def event(name: str, reason: str, hours: float) -> dict[str, Any]:
        when = (datetime.now(UTC) - timedelta(hours=hours)).isoformat().replace("+00:00", "Z")
        involved = {"kind": "PyTorchJob", "name": name}
        meta = {"name": f"{name}.1", "namespace": "team", "creationTimestamp": when}
        return {
            "metadata": meta,
            "involvedObject": involved,
            "reason": reason,
            "message": "no",
            "lastTimestamp": when,
        }

    events = [
        event("now", "FailedCreatePod", 0.1),
        event("long-ago", "FailedCreatePod", 3),
        event("other", "X", 0.1),
    ]
    api.world["/api/v1/namespaces/team/events"] = {"items": events}
    assert "pods-refused" not in bad(examine()), "the job is deleted"
    api.world["/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/now"] = {
        "metadata": {"name": "now"}
    }
    report = examine()
    assert [finding.where for finding in report.findings if finding.rule == "pods-refused"] == [
        "PyTorchJob now"
    ]
    assert bad(report)["pods-refused"].level == "fail"
    made = {
        "name": "now-master-0",
        "creationTimestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
    }
    pod = {"metadata": made, "spec": {"containers": [{"name": "pytorch"}]}, "status": {}}
    api.world["/api/v1/namespaces/team/pods"] = {"items": [pod]}
    assert "pods-refused" not in bad(examine()), "its pod was made since then"
    api.world["/api/v1/namespaces/team/events"] = None
    assert bad(examine())["pods-refused"].level == "note"


@pytest.mark.parametrize(
    ("there", "over"),
    [({"metadata": {"creationTimestamp": "2100-01-01T00:00:00Z"}}, True),
     ({"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}, True),
     ({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}, False)],
    ids=["replaced", "ended", "waiting"],
)  # fmt: skip
def test_a_refusal_counts_while_its_job_waits(
    api: type[Namespace], there: dict[str, Any], over: bool
) -> None:
    refuse(api, "PyTorchJob", "now", "exceeded quota")
    there["metadata"]["name"] = "now"
    api.world["/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/now"] = there
    assert ("pods-refused" not in bad(examine())) == over


@pytest.mark.parametrize("kind", ["MPIJob", "TFJob", "XGBoostJob", "JAXJob"])
def test_a_refusal_is_over_when_its_job_is_deleted(api: type[Namespace], kind: str) -> None:
    refuse(api, kind, "now", "exceeded quota")
    assert "pods-refused" not in bad(examine())
    api.world[f"/apis/kubeflow.org/v1/namespaces/team/{kind.lower()}s/now"] = {
        "metadata": {"name": "now"}
    }
    assert "pods-refused" in bad(examine())


def test_a_pod_that_is_there_already_is_not_refused(api: type[Namespace]) -> None:
    refuse(api, "Job", "now", 'Error creating: pods "now-x" already exists')
    api.world["/apis/batch/v1/namespaces/team/jobs/now"] = {"metadata": {"name": "now"}}
    assert "pods-refused" not in bad(examine())


def test_refusals_of_a_kind_that_is_gone_are_over(api: type[Namespace]) -> None:
    refuse(api, "MPIJob", "now", "exceeded quota")
    unknown = "404 page not found"
    api.world["/apis/kubeflow.org/v1/namespaces/team/mpijobs/now"] = unknown
    assert "pods-refused" not in bad(examine())


@pytest.mark.parametrize("have", [0, 2])
def test_a_refusal_is_over_when_the_replicas_are_there(api: type[Namespace], have: int) -> None:
    refuse(api, "ReplicaSet", "web-1", "exceeded quota")
    spec = {"replicas": 2, "selector": {}}
    there = {"metadata": {"name": "web-1"}, "spec": spec, "status": {"replicas": have}}
    api.world["/apis/apps/v1/namespaces/team/replicasets/web-1"] = there
    assert ("pods-refused" in bad(examine())) == (have == 0)


def refuse(api: type[Namespace], kind: str, name: str, message: str) -> None:
    """Let the events tell of a pod that was refused a minute ago."""
    when = (datetime.now(UTC) - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    meta = {"name": f"{name}.1", "namespace": "team", "creationTimestamp": when}
    event = {
        "metadata": meta,
        "involvedObject": {"kind": kind, "name": name},
        "reason": "FailedCreate",
    }
    api.world["/api/v1/namespaces/team/events"] = {
        "items": [{**event, "message": message, "lastTimestamp": when}]
    }


def test_a_webhook_that_is_away_is_asked_for_seconds(
    api: type[Namespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.doctor.namespace.PATIENCE", 0.6)
    api.world["webhook away"] = asked = ["first"]
    found = bad(examine(manifests=[with_credentials()]))
    assert asked.count("Experiment") <= 3
    webhook = "nobody answers for webhook mutator.pod.katib.kubeflow.org: "
    assert found["server-admits"].hint == (
        f"{webhook}kubectl -n kubeflow get endpoints,pods shows what is behind katib-controller"
    )


def test_trials_without_credentials_for_their_data_are_found(api: type[Namespace]) -> None:
    assert "storage-credentials" not in bad(examine(manifests=[with_credentials()]))
    assert (
        bad(examine(manifests=[yaml.safe_load(GOOD)]))["storage-credentials"].where
        == "Experiment sweep"
    )
    live = yaml.safe_load(GOOD)
    live["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    api.world["/apis/kubeflow.org/v1beta1/namespaces/team/experiments"] = listed(live)
    assert bad(examine())["storage-credentials"].level == "warn"


def test_rights_on_the_very_secret_and_configmap_are_asked(api: type[Namespace]) -> None:
    api.denied = {"get configmaps podium-storage", "get secrets store"}
    assert (
        bad(examine())["rights"].what == "missing: get configmaps podium-storage, get secrets store"
    )


def test_no_secret_value_is_ever_shown(api: type[Namespace]) -> None:
    assert "hush" not in json.dumps(examine().as_dict())
    assert "aHVzaA" not in json.dumps(examine().as_dict())


def test_an_empty_cluster_fails_with_a_hint_for_each_thing(api: type[Namespace]) -> None:
    api.world = {
        "/api/v1/namespaces/team": {"metadata": {"name": "team"}},
        "/apis/batch/v1": kinds("Job"),
        "/apis/apps/v1/deployments": {"items": []},
    }
    found = bad(examine())
    assert {name for name, finding in found.items() if finding.level == "fail"} == {"kinds-known"}
    assert all(finding.hint for finding in found.values())


def test_missing_permission_to_read_is_a_warning(api: type[Namespace]) -> None:
    api.world = dict.fromkeys(api.world)
    report = examine()
    assert report.verdict == "warn"
    assert {finding.level for finding in bad(report).values()} == {"warn", "note"}


def test_missing_rights_are_named(api: type[Namespace]) -> None:
    api.denied = {"create pytorchjobs", "get pods/log"}
    assert bad(examine())["rights"].what == "missing: create pytorchjobs, get pods/log"


def test_a_service_account_s_rights_can_be_asked_for(api: type[Namespace]) -> None:
    api.denied = {"system:serviceaccount:team:pipeline-runner: create experiments"}
    assert "rights" not in bad(examine())
    finding = bad(examine(account="pipeline-runner"))["rights"]
    assert finding.where == "rights of pipeline-runner"
    assert finding.what == "missing: create experiments"
    assert "rights" not in bad(examine(account="kubeflow:pipeline-runner"))
    api.denied = {"system:serviceaccount:kubeflow:podium-steps-team: create jobs"}
    assert (
        bad(examine(account="kubeflow:podium-steps-team"))["rights"].what == "missing: create jobs"
    )


def test_a_store_without_pods_behind_it_fails(api: type[Namespace]) -> None:
    api.world["/api/v1/namespaces/team/endpoints/minio-service"] = {"subsets": []}
    assert "0 pods" in bad(examine())["storage-reachable"].what
    del api.world["/api/v1/namespaces/team/endpoints/minio-service"]
    assert "no Service minio-service" in bad(examine())["storage-reachable"].what


def test_a_store_in_another_namespace_is_looked_for_there(api: type[Namespace]) -> None:
    api.world["/api/v1/namespaces/team/configmaps/podium-storage"]["data"]["endpoint"] = (
        "minio.store.svc:9000"
    )
    assert "in namespace store" in bad(examine())["storage-reachable"].what


@pytest.mark.parametrize("endpoint", ["http://minio:9000x", "http://[minio", "minio:99999"])
def test_an_endpoint_that_is_no_address_fails(api: type[Namespace], endpoint: str) -> None:
    api.world["/api/v1/namespaces/team/configmaps/podium-storage"]["data"]["endpoint"] = endpoint
    assert "does not answer" in bad(examine())["storage-reachable"].what


def test_the_webhook_s_own_refusal_is_shown(api: type[Namespace]) -> None:
    manifest = yaml.safe_load(GOOD)
    manifest["metadata"]["name"] = "refused"
    assert "denied the request: goal" in bad(examine(manifests=[manifest]))["server-admits"].what


def test_a_pod_that_cannot_pull_its_image_is_shown(api: type[Namespace]) -> None:
    waiting = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    waiting["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    meta = {"name": "trial-0", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod = {
        "metadata": meta,
        "spec": {"containers": [{"name": "main"}]},
        "status": {"containerStatuses": [waiting]},
    }
    api.world["/api/v1/namespaces/team/pods"] = {"items": [pod]}
    finding = bad(examine())["pods-that-cannot-start"]
    assert finding.where == "pod trial-0"
    assert "ImagePullBackOff" in finding.what


def test_a_silent_server_is_an_error_at_once(api: type[Namespace]) -> None:
    with pytest.raises(PodiumError, match="does not answer"):
        examine_namespace("team")


def test_any_answer_tells_that_a_store_is_there(api: type[Namespace], tmp_path: Path) -> None:
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    server = config["clusters"][0]["cluster"]["server"]
    assert answers(f"{server}/nothing")[0]
    assert not answers("http://127.0.0.1:9/")[0]
    with socket.create_server(("127.0.0.1", 0)) as no_http:

        def greet() -> None:
            with no_http.accept()[0] as asked:
                asked.sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=greet, daemon=True).start()
        well, said = answers(f"http://127.0.0.1:{no_http.getsockname()[1]}/")
    assert not well
    assert "does not answer" in said


def test_a_level_that_refuses_controllers_containers_is_said(api: type[Namespace]) -> None:
    api.world["/api/v1/namespaces/team"]["metadata"]["labels"][ENFORCE] = "restricted"
    assert bad(examine())["pod-security"].level == "warn"
