"""Two teams on a live cluster, each from a copy of deploy/teams/example: neither sees, deletes nor promotes the other's.

The store is MinIO, whose administrator the cluster's own key is: each team gets a key for its folder of a bucket.
"""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from livekubeflow import NAMESPACE, end_of, podium
from test_cluster_engine import RATES

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.options import annotation
from podium.storage import connect

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("server"),
]

DEPLOY = Path(__file__).parents[2] / "deploy"
BUCKET = "podium-teams"
SHARED = {
    "podium-steps-TEAM": {
        "create workflowtaskresults.argoproj.io", "patch workflowtaskresults.argoproj.io", "get workflows.argoproj.io",
        "get pods", "get configmaps/kfp-launcher", "get secrets/mlpipeline-minio-artifact",
    },
    "podium-engine": set(),
    "podium-reaper": {"get workflows.argoproj.io", "list workflows.argoproj.io"},
    "default": set(),
}  # fmt: skip
"""All that the accounts of a team may do in the namespace that it shares; the engine's and the reaper's are its own."""

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RESOURCES = (
    "pods", "pods/exec", "pods/log", "pods/ephemeralcontainers", "secrets", "secrets/mlpipeline-minio-artifact", "configmaps",
    "configmaps/kfp-launcher", "serviceaccounts", "serviceaccounts/token", "events", "deployments.apps",
    "statefulsets.apps", "jobs.batch", "pytorchjobs.kubeflow.org", "experiments.kubeflow.org", "leases.coordination.k8s.io",
    "workflows.argoproj.io", "workflowtaskresults.argoproj.io", "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
)  # fmt: skip

REACHED = (
    "create jobs",
    "get secrets/podium-storage",
    "list pods",
    "get pods/log",
    "delete pytorchjobs.kubeflow.org",
)
"""What a team's steps may do in its namespace, and nobody else's."""


@dataclass(frozen=True)
class Team:
    """A team that is set up."""

    name: str
    project: Path
    environment: dict[str, str]

    @property
    def account(self) -> str:
        """Service account of its steps."""
        return f"podium-steps-{self.name}"

    @property
    def storage(self) -> str:
        """Where its models are."""
        return f"s3://{BUCKET}/{self.name}"

    def podium(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as one of the team: in its project, with its key."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.project)
            patch.delenv("PODIUM_S3_SECRET", raising=False)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            return podium(*words)

    def submit(self, *words: str) -> str:
        """Start a run of the project; its id."""
        done = self.podium("submit", *words, "--json")
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["run_id"])


def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kubectl", *words], capture_output=True, text=True, timeout=300, check=False
    )


def hand_out_key(team: str, folder: Path) -> dict[str, str]:
    """Make a user of MinIO whose key opens the team's folder; the environment that uses it."""
    from minio import MinioAdmin
    from minio.credentials import StaticProvider

    endpoint = os.environ["AWS_ENDPOINT_URL"]
    secret = client.CoreV1Api().read_namespaced_secret("mlpipeline-minio-artifact", NAMESPACE)
    access, key = (
        yaml.safe_load(f"!!binary {secret.data[name]}").decode()
        for name in ("accesskey", "secretkey")
    )
    admin = MinioAdmin(endpoint=urlsplit(endpoint).netloc, credentials=StaticProvider(access_key=access, secret_key=key),
                       secure=False)  # fmt: skip
    policy = folder / "bucket-policy.json"
    policy.write_text(
        policy.read_text().replace(":::podium", f":::{BUCKET}").replace("vision", team)
    )
    admin.policy_add(policy_name=team, policy_file=str(policy))
    own = uuid.uuid4().hex
    admin.user_add(access_key=team, secret_key=own)
    admin.policy_set(policy_name=team, user=team)
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": team, "AWS_SECRET_ACCESS_KEY": own}


def set_up(name: str, folder: Path) -> Team:
    """Fill in a copy of the example as docs/cluster-teams.md says, apply it, and write a project of the team."""
    overlay = folder / "deploy" / "teams" / name
    shutil.copytree(overlay.parent / "example", overlay)
    environment = hand_out_key(name, overlay)
    settings = (overlay / "team.yaml").read_text()
    settings = settings.replace("name: vision", f"name: {name}").replace(
        "bucket: podium", f"bucket: {BUCKET}"
    )
    (overlay / "team.yaml").write_text(settings)
    secret = yaml.safe_load((overlay / "storage.yaml.example").read_text())
    secret["stringData"] = {"accesskey": name, "secretkey": environment["AWS_SECRET_ACCESS_KEY"]}
    (overlay / "storage.yaml").write_text(yaml.safe_dump(secret))
    applied = kubectl("apply", "--server-side", "-k", str(overlay))
    assert applied.returncode == 0, applied.stderr
    project = folder / name
    project.mkdir()
    team = Team(name, project, environment)
    rows = [f"{number % 97},{number % 89},{'ny'[number % 97 > 48]}" for number in range(600)]
    connect(f"s3://{BUCKET}").put(f"{name}/raw/rows.csv", "\n".join(["a,b,label", *rows]).encode())
    content = {
        "name": f"{name}-rows", "pipeline": "train_and_promote", "model_name": "rows", "target": "label",
        "dataset": f"table:{team.storage}/raw/rows.csv", "storage": team.storage, "workers": 0, "epochs": 1,
        "pods": {"cpu": "100m"},
        "server": {"service_account": team.account, "pipeline_root": f"minio://{BUCKET}/{name}/kfp"},
    }  # fmt: skip
    (project / "podium.yaml").write_text(yaml.safe_dump(content))
    uploaded = team.podium("upload")
    assert uploaded.returncode == 0, uploaded.stderr
    return team


@pytest.fixture(scope="module")
def teams(
    server: str, store: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Team, Team]]:
    """Two teams, for the time of these tests."""
    folder, suffix = tmp_path_factory.mktemp("teams"), uuid.uuid4().hex[:6]
    shutil.copytree(DEPLOY, folder / "deploy")
    connect(f"s3://{BUCKET}", create=True)
    names = (f"vision-{suffix}", f"speech-{suffix}")
    yield set_up(names[0], folder), set_up(names[1], folder)
    for name in names:
        kubectl("delete", "-k", str(folder / "deploy" / "teams" / name), "--wait=false")


def may(account: str, action: str, namespace: str) -> bool:
    """Return whether a service account of the steps' namespace may do something."""
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    return (
        kubectl("auth", "can-i", *action.split(), "--namespace", namespace, who).stdout.strip()
        == "yes"
    )


def test_each_team_promotes_its_own_model_of_one_name(teams: tuple[Team, Team]) -> None:
    runs = [team.submit() for team in teams]
    assert [end_of(run) for run in runs] == ["SUCCEEDED", "SUCCEEDED"]
    for team, run, other in zip(teams, runs, reversed(teams), strict=True):
        shown = team.podium(
            "models", "show", "rows", "champion", "--storage", team.storage, "--json"
        )
        assert run in shown.stdout, shown.stderr
        jobs = kubectl(
            "get", "pytorchjobs", "-n", team.name, "-l", f"podium/run-id={run}", "-o", "name"
        )
        assert len(jobs.stdout.split()) == 1
        assert (
            team.podium(
                "runs", "logs", run, "train-distributed", "--storage", team.storage
            ).returncode
            == 0
        )
        for words in (
            ["models", "list"],
            ["models", "rollback", "rows"],
            ["runs", "prune", "--older-than", "0"],
        ):
            refused = team.podium(*words, "--storage", other.storage)
            assert refused.returncode != 0
            assert "is not allowed to" in refused.stderr


@pytest.mark.parametrize(
    "parameter", ["cluster=kubernetes://{name}", "storage=s3://podium-teams/{name}"]
)
def test_a_run_cannot_use_what_is_another_teams(teams: tuple[Team, Team], parameter: str) -> None:
    mine, other = teams
    ended = end_of(mine.submit(parameter.format(name=other.name), "model_name=foreign"))
    assert "failed at" in ended
    assert (
        "foreign" not in other.podium("models", "list", "--storage", other.storage, "--json").stdout
    )


def test_a_teams_steps_have_rights_in_its_namespace_alone(teams: tuple[Team, Team]) -> None:
    for mine, other in (teams, teams[::-1]):
        for action in REACHED:
            assert may(mine.account, action, mine.name)
            assert not may(mine.account, action, other.name)
            assert not may("podium-steps", action, mine.name)
        assert not may(mine.account, "create jobs", NAMESPACE)


def rights_of(user: str, namespace: str) -> set[str]:
    """Ask the server for each verb of each resource."""
    review, found = client.AuthorizationV1Api(), set()
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{user.split(':')[2]}",
        "system:authenticated",
    ]
    for resource in RESOURCES:
        plural, _, name = resource.partition("/")
        plural, _, group = plural.partition(".")
        sub = name if name in ("exec", "log", "ephemeralcontainers", "token") else ""
        where = {"namespace": namespace, "group": group, "resource": plural, "subresource": sub}
        where |= {"name": name} if name and not sub else {}
        for verb in VERBS:
            spec = {"user": user, "groups": groups, "resourceAttributes": {**where, "verb": verb}}
            if review.create_subject_access_review({"spec": spec}).status.allowed:
                found.add(f"{verb} {resource}")
    return found


@pytest.mark.parametrize("account", SHARED)
def test_a_teams_accounts_have_listed_rights_where_they_are_guests(
    teams: tuple[Team, Team], account: str
) -> None:
    name = teams[0].name
    home = NAMESPACE if account.startswith("podium-steps") else name
    user = f"system:serviceaccount:{home}:{account.replace('TEAM', name)}"
    assert rights_of(user, NAMESPACE) == SHARED[account]


def as_account(account: str, pod: str = "") -> client.ApiClient:
    """Return a client that the server takes for an account of the steps, in a pod of some name."""
    api = client.ApiClient()
    api.set_default_header("Impersonate-User", f"system:serviceaccount:{NAMESPACE}:{account}")
    if pod:
        api.set_default_header("Impersonate-Extra-authentication.kubernetes.io%2Fpod-name", pod)
    return api


def lease(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"holderIdentity": "a-thief"}}


def result(workflow: str) -> dict[str, Any]:
    metadata = {
        "name": f"{workflow}-{uuid.uuid4().hex[:6]}",
        "labels": {"workflows.argoproj.io/workflow": workflow},
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTaskResult",
        "metadata": metadata,
    }


RESULTS = ("argoproj.io", "v1alpha1", NAMESPACE, "workflowtaskresults")


def test_a_teams_steps_take_over_nothing_of_the_shared_namespace(teams: tuple[Team, Team]) -> None:
    api = as_account(teams[0].account, pod="mine-abc12-step-1")
    (reaper,) = (
        client.CoreV1Api()
        .list_namespaced_pod(NAMESPACE, label_selector="app.kubernetes.io/name=podium-reaper")
        .items
    )
    change = {"spec": {"containers": [{"name": "reaper", "image": "podium-trainer:0.1.0"}]}}
    with pytest.raises(ApiException, match="cannot patch resource"):
        client.CoreV1Api(api).patch_namespaced_pod(
            reaper.metadata.name, NAMESPACE, change, dry_run="All"
        )
    custom = client.CustomObjectsApi(api)
    custom.create_namespaced_custom_object(*RESULTS, result("mine-abc12"), dry_run="All")
    with pytest.raises(ApiException, match="results of its own workflow alone"):
        custom.create_namespaced_custom_object(*RESULTS, result("other-abc12"), dry_run="All")
    others = client.CustomObjectsApi().create_namespaced_custom_object(
        *RESULTS, result("other-abc12")
    )["metadata"]["name"]
    stolen = {"metadata": {"labels": {"workflows.argoproj.io/workflow": "mine-abc12"}}}
    with pytest.raises(ApiException, match="results of its own workflow alone"):
        custom.patch_namespaced_custom_object(*RESULTS, others, stolen)
    client.CustomObjectsApi().delete_namespaced_custom_object(*RESULTS, others)


def test_steps_lead_nothing_but_sweeps(teams: tuple[Team, Team]) -> None:
    for account, namespace in ((teams[0].account, teams[0].name), ("podium-steps", NAMESPACE)):
        coordination = client.CoordinationV1Api(as_account(account))
        coordination.create_namespaced_lease(namespace, lease("podium-sweep-mine"), dry_run="All")
        with pytest.raises(ApiException, match="steps lead sweeps alone"):
            coordination.create_namespaced_lease(
                namespace, lease("training-operator"), dry_run="All"
            )
        with pytest.raises(ApiException, match="steps lead sweeps alone"):
            coordination.delete_namespaced_lease("podium-engine", namespace, dry_run="All")


def test_a_job_beside_the_server_gets_no_account_of_it(teams: tuple[Team, Team]) -> None:
    spec = {"containers": [{"name": "main", "image": "podium-steps:0.1.0"}]}
    core = client.CoreV1Api()
    core.create_namespaced_pod(
        NAMESPACE, {"metadata": {"name": "try"}, "spec": spec}, dry_run="All"
    )
    stolen = {"metadata": {"name": "try"}, "spec": {**spec, "serviceAccountName": "ml-pipeline"}}
    with pytest.raises(ApiException, match="not ml-pipeline"):
        core.create_namespaced_pod(NAMESPACE, stolen, dry_run="All")


def test_a_teams_engine_runs_a_pool_in_its_namespace(teams: tuple[Team, Team]) -> None:
    name = teams[0].name
    with KubernetesCluster(f"kubernetes://{name}") as cluster:
        if cluster.has_katib:
            pytest.skip("Katib runs the Experiments of this cluster")
    assert (
        kubectl(
            "-n", name, "rollout", "status", "deployment", "podium-engine", "--timeout=120s"
        ).returncode
        == 0
    )
    manifest = yaml.safe_load(RATES.replace("NAME", "pool"))
    manifest["metadata"]["annotations"] = annotation({"pool": 2})
    (teams[0].project / "pool.yaml").write_text(yaml.safe_dump(manifest))
    with KubernetesCluster(f"kubernetes://{name}") as cluster:
        assert cluster.runs_experiments
    ran = teams[0].podium("experiment", "run", "pool.yaml", "--cluster", f"kubernetes://{name}")
    assert ran.returncode == 0, ran.stderr
    assert "best trial: pool-" in ran.stdout + ran.stderr
    assert [entry.key for entry in connect(f"s3://{BUCKET}/{name}/pools").list()]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"serviceAccountName": "podium-reaper"},
            "run as the service account default, not podium-reaper",
        ),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "other"}}]},
            "mount no other Secret than podium-storage",
        ),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"hostNetwork": True}, "host"),
    ],
)
def test_pods_that_reach_beyond_their_team_are_refused(
    teams: tuple[Team, Team], changes: dict[str, Any], expected: str
) -> None:
    def create(**more: Any) -> None:
        spec = {"containers": [{"name": "main", "image": "podium-trainer:0.1.0"}], **more}
        body = {"metadata": {"name": "try"}, "spec": spec}
        client.CoreV1Api().create_namespaced_pod(teams[0].name, body, dry_run="All")

    create()
    with pytest.raises(ApiException) as caught:
        create(**changes)
    assert caught.value.status in (403, 422)  # of Pod Security, of an admission policy
    assert expected in json.loads(caught.value.body)["message"]
