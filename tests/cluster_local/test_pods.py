"""Fields of a pod template: honored, named as ignored, or refused with their path; never dropped."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytorchjobs import write_pytorchjob

from podium.cluster.local.logs import Logs
from podium.cluster.local.scripts import script_of
from podium.cluster.local.supplies import Supplies
from podium.errors import InvalidInput, PodiumError
from podium.manifests.conditions import Manifest
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

PATH = "spec.pytorchReplicaSpecs.Master.template.spec"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    entrypoints = {"packed": ("echo", "the entrypoint got")}
    with LocalSweeps(
        tmp_path / "cluster", images={"mapped": tmp_path}, entrypoints=entrypoints
    ) as there:
        yield there


def manifest(
    pod: dict[str, Any] | None = None, container: dict[str, Any] | None = None, **changes: Any
) -> Manifest:
    given = {"name": "job", "image": "any", "command": ("sh", "-c"), "restart_policy": "Never"}
    job = write_pytorchjob(**(given | changes))
    spec = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    spec |= pod or {}
    spec["containers"][0] |= container or {}
    return job


def output(cluster: LocalSweeps, job: Manifest) -> list[str]:
    cluster.create(typed(job))
    return list(cluster.logs("PyTorchJob", "job", follow=True))


def say(text: str, **container: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", f"echo {text}"]} | container


def test_references_expand_in_command_args_and_later_variables(cluster: LocalSweeps) -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)2 $(LATER) $$(A)"},
        {"name": "LATER", "value": "x"},
    ]
    job = manifest(
        container={
            "env": env,
            "command": ["echo"],
            "args": ["$(B)", "$(RANK)", "$(NONE)", "$$(A)", "$(f $$ $(A))", "$(A"],
        }
    )
    assert output(cluster, job) == ["12 $(LATER) $(A) 0 $(NONE) $(A) $(f $$ $(A)) $(A"]


def test_a_container_without_a_command_runs_its_images_entrypoint(cluster: LocalSweeps) -> None:
    job = manifest(container={"image": "packed:1.0", "args": ["$(RANK)"]})
    del job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["command"]
    assert output(cluster, job) == ["the entrypoint got 0"]


def test_a_command_is_stronger_than_the_entrypoint(cluster: LocalSweeps) -> None:
    assert output(cluster, manifest(container=say("mine", image="packed"))) == ["mine"]


def test_the_operators_values_win_over_the_manifests(cluster: LocalSweeps) -> None:
    env = [{"name": "RANK", "value": "7"}, {"name": "PYTHONUNBUFFERED", "value": "no"}]
    assert output(cluster, manifest(container=say("$RANK $PYTHONUNBUFFERED", env=env))) == ["0 1"]


def test_the_callers_environment_is_inherited_but_not_its_rank(
    cluster: LocalSweeps, monkeypatch: Any
) -> None:
    for name in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID", "PET_RDZV_ID", "MY_PROXY"):
        monkeypatch.setenv(name, "callers")
    assert output(
        cluster, manifest(container=say("$WORLD_SIZE,$TORCHELASTIC_RUN_ID,$PET_RDZV_ID,$MY_PROXY"))
    ) == ["1,,,callers"]


def test_the_pod_knows_its_name_and_labels(cluster: LocalSweeps) -> None:
    fields = [
        "metadata.name",
        "metadata.namespace",
        "metadata.labels['training.kubeflow.org/job-role']",
        "status.podIP",
    ]
    env = [
        {"name": f"F{n}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for n, path in enumerate(fields)
    ]
    job = manifest(container=say("$F0 $F1 $F2 $F3", env=env))
    assert output(cluster, job) == ["job-master-0 default master 127.0.0.1"]


def test_a_secret_comes_from_the_callers_environment(
    cluster: LocalSweeps, monkeypatch: Any
) -> None:
    job = manifest(container={"args": ["echo $KEY"]}, secret_env={"KEY": ("minio", "secretkey")})
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(InvalidInput, match=r"secretKeyRef: there is no secret 'minio' .*") as error:
        cluster.create(typed(job))
    assert "export KEY=" in str(error.value.hint)
    monkeypatch.setenv("KEY", "s3cret")
    assert output(cluster, job) == ["s3cret"]
    assert "s3cret" not in (cluster.store.path("PyTorchJob", "job") / "object.json").read_text()


def test_cores_are_divided_between_the_processes_of_a_job(cluster: LocalSweeps) -> None:
    share = {"podium.dev/cpu-share": "6"}
    assert output(
        cluster, manifest(container=say("$OMP_NUM_THREADS"), workers=1, annotations=share)
    ) == ["3"]


def test_the_manifests_own_thread_count_is_kept(cluster: LocalSweeps) -> None:
    env = [{"name": "OMP_NUM_THREADS", "value": "5"}]
    assert output(cluster, manifest(container=say("$OMP_NUM_THREADS", env=env))) == ["5"]


def test_threads_that_wait_sleep(cluster: LocalSweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert output(cluster, manifest(container=say("$OMP_WAIT_POLICY"))) == ["PASSIVE"]


def test_threads_that_wait_spin_where_the_manifest_says_so(cluster: LocalSweeps) -> None:
    env = [{"name": "OMP_WAIT_POLICY", "value": "ACTIVE"}]
    assert output(cluster, manifest(container=say("$OMP_WAIT_POLICY", env=env))) == ["ACTIVE"]


@pytest.mark.parametrize("share", ["0", "nan", "inf", "many"])
def test_a_core_share_that_is_no_positive_number_is_refused(
    cluster: LocalSweeps, share: str
) -> None:
    with pytest.raises(InvalidInput, match="a number of cores above 0"):
        cluster.create(
            typed(manifest(container=say("x"), annotations={"podium.dev/cpu-share": share}))
        )


def test_init_containers_run_first_and_share_an_empty_dir(cluster: LocalSweeps) -> None:
    mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    init = {
        "name": "fetch",
        "image": "any",
        "command": ["sh", "-c", "echo 42 > /data/n; echo fetched"],
    } | mount
    pod = {"initContainers": [init], "volumes": [{"name": "data", "emptyDir": {}}]}
    assert output(cluster, manifest(pod, {"command": ["cat", "/data/n"]} | mount)) == ["42"]
    assert (
        cluster.store.path("PyTorchJob", "job") / "logs/master-0.fetch.log"
    ).read_text() == "fetched\n"


def test_a_failing_init_container_fails_the_pod(cluster: LocalSweeps) -> None:
    init = {"name": "fetch", "image": "any", "command": ["sh", "-c", "echo no data; false"]}
    assert output(cluster, manifest({"initContainers": [init]}, say("never"))) == []
    assert Logs(cluster.store, "PyTorchJob", "job").last_line() == "no data"


def test_a_host_path_is_read_where_the_manifest_mounts_it(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_text("from the host")
    pod = {"volumes": [{"name": "v", "hostPath": {"path": str(tmp_path)}}]}
    container = {
        "volumeMounts": [{"name": "v", "mountPath": "/mnt/v", "subPath": "in"}],
        "command": ["cat", "/mnt/v/x"],
    }
    assert output(cluster, manifest(pod, container)) == ["from the host"]


@pytest.fixture
def supplied(tmp_path: Path) -> Iterator[LocalSweeps]:
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "x").write_text("from the claim")
    (tmp_path / "keys.env").write_text("TOKEN=hush$(HOME)\nUSER_NAME=me\n")
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "run.yaml").write_text("lr: 1")
    (tmp_path / "settings" / "other").write_text("2")
    supplies = Supplies(
        volume={"claim": str(tmp_path / "claim")},
        secret={"keys": str(tmp_path / "keys.env"), "mine": "env"},
        config_map={"settings": str(tmp_path / "settings")},
    )
    with LocalSweeps(tmp_path / "cluster", supplies=supplies.checked()) as there:
        yield there


@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "claim"}},
        {"nfs": {"server": "s", "path": "/"}, "name": "claim"},
        {"hostPath": {"path": "/no/such"}, "name": "claim"},
    ],
)
def test_a_directory_stands_in_for_a_volume(supplied: LocalSweeps, source: dict[str, Any]) -> None:
    volume = {"name": "v"} | source
    mount = {"name": volume["name"], "mountPath": "/data"}
    container = {"volumeMounts": [mount], "command": ["cat", "/data/x"]}
    assert output(supplied, manifest({"volumes": [volume]}, container)) == ["from the claim"]


def test_secrets_and_config_maps_become_variables(supplied: LocalSweeps) -> None:
    keys = {"name": "keys", "key": "USER_NAME"}
    absent = {"name": "none", "key": "k", "optional": True}
    container = {
        "envFrom": [{"prefix": "A_", "secretRef": {"name": "keys"}}],
        "env": [
            {"name": "WHO", "valueFrom": {"secretKeyRef": keys}},
            {"name": "ABSENT", "valueFrom": {"configMapKeyRef": absent}},
            {"name": "TWICE", "value": "$(A_USER_NAME) $(WHO)"},
        ],
        "command": ["sh", "-c", "echo $A_TOKEN $WHO $TWICE ${ABSENT-unset}"],
    }
    assert output(supplied, manifest(container=container)) == ["hush$(HOME) me me me unset"]


def test_secrets_and_config_maps_are_mounted_as_files(supplied: LocalSweeps) -> None:
    pod = {
        "volumes": [
            {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 256}},
            {
                "name": "settings",
                "configMap": {"name": "settings", "items": [{"key": "run.yaml", "path": "a/b"}]},
            },
        ]
    }
    container = {
        "volumeMounts": [
            {"name": "keys", "mountPath": "/etc/keys"},
            {"name": "settings", "mountPath": "/etc/run.yaml", "subPath": "a/b"},
        ],
        "command": [
            "sh",
            "-c",
            "cat /etc/keys/USER_NAME /etc/run.yaml; stat -c %a /etc/keys/TOKEN",
        ],
    }
    assert output(supplied, manifest(pod, container)) == ["melr: 1600"]


@pytest.mark.parametrize(
    ("pod", "container", "said"),
    [
        ({}, {"envFrom": [{"secretRef": {"name": "mine"}}]}, "--secret mine=FILE"),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "mine"}}]},
            {},
            "--secret mine=DIR",
        ),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "configMap": {
                            "name": "settings",
                            "items": [{"key": "other", "path": "../x"}],
                        },
                    }
                ]
            },
            {},
            "a path inside the volume, not ../x",
        ),
        (
            {},
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]},
            "has no key 'k': it has TOKEN, USER_NAME",
        ),
    ],
)
def test_what_a_stand_in_lacks_is_said_first(
    supplied: LocalSweeps, pod: dict[str, Any], container: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        supplied.create(typed(manifest(pod, {"command": ["true"]} | container)))
    assert said in str(error.value)
    assert not supplied.list("PyTorchJob")


def test_a_working_directory_is_entered(cluster: LocalSweeps, tmp_path: Path) -> None:
    assert output(
        cluster, manifest(container={"command": ["pwd"], "workingDir": str(tmp_path)})
    ) == [str(tmp_path)]


def test_python_and_torchrun_are_those_of_this_interpreter(cluster: LocalSweeps) -> None:
    places = output(cluster, manifest(container={"command": ["sh", "-c", "which python torchrun"]}))
    assert {os.path.dirname(place) for place in places} == {os.path.dirname(sys.executable)}


def test_a_mapped_image_is_root_and_working_directory(cluster: LocalSweeps, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "greet").write_text("#!/bin/sh\necho hello; cat config; echo new > made\n")
    (tmp_path / "bin" / "greet").chmod(0o755)
    (tmp_path / "config").write_text("from the root\n")
    assert output(cluster, manifest(image="mapped:v1", command=("greet",))) == [
        "hello",
        "from the root",
    ]
    assert not (tmp_path / "made").exists()
    cluster.delete("PyTorchJob", "job")
    assert output(cluster, manifest(image="mapped", command=("/bin/greet",)))[0] == "hello"


def test_a_module_of_a_package_needs_the_callers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("print(open('data').read())")
    (tmp_path / "data").write_text("7")
    monkeypatch.chdir(tmp_path)
    with LocalSweeps(tmp_path / "runs" / "cluster") as cluster:
        assert output(cluster, manifest(command=("python", "-m", "mine.train"))) == ["7"]


def test_any_other_image_works_where_the_caller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(
        "import helper; print(open('data').read()); open('model', 'w')"
    )
    (tmp_path / "code" / "helper.py").write_text("print('helped')")
    (tmp_path / "data").write_text("7")
    monkeypatch.chdir(tmp_path)
    with LocalSweeps(tmp_path / "runs" / "cluster") as cluster:
        assert output(cluster, manifest(command=("python", "code/train.py"))) == ["helped", "7"]
        assert not (tmp_path / "model").exists()
        cluster.delete("PyTorchJob", "job")
        assert output(cluster, manifest(command=("sh", "-c", "ls"))) == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python -u -W ignore train.py --epochs 2", "train.py"),
        ("/usr/bin/python3.11 -m torch.distributed.run --nproc_per_node=2 train.py", "train.py"),
        ("python -um torch.distributed.launch --use-env --node_rank 0 train.py -m", "train.py"),
        (
            "torchrun --standalone --nproc-per-node 2 --rdzv_backend=c10d train.py train2.py",
            "train.py",
        ),
        ("torchrun --nproc-per-node 2 -m package.train", None),
        ("torchrun --no-python sh run.sh", None),
        ("torchrun", None),
        ("python -m package.train train.py", None),
        ("python -c pass train.py", None),
        ("python", None),
        ("sh train.py", None),
        (
            "accelerate launch --num_processes 2 --mixed_precision=bf16 train.py --lr 0.1",
            "train.py",
        ),
        ("python -m accelerate.commands.launch --config_file a.yaml src/train.py", "src/train.py"),
        ("accelerate launch -m package.train train.py", None),
        ("accelerate config train.py", None),
    ],
)
def test_the_script_behind_python_and_its_launchers_is_found(
    command: str, script: str | None
) -> None:
    assert script_of(command.split()) == script


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("python train.py --lr 0.1 1>/var/log/metrics.log 2>&1", "train.py"),
        ("exec torchrun --standalone train.py && echo done", "train.py"),
        ("pip install -r requirements.txt\nPYTHONPATH=. python -u train.py | tee log", "train.py"),
        ("mkdir -p out; accelerate launch train.py", "train.py"),
        ("cd /app && python train.py", None),
        ("git clone there && python there/train.py", None),
        ("echo 'print(1)' > train.py && python train.py", None),
        ("python $SCRIPT", None),
        ("python 'a b.py'", None),
        ("if true; then python train.py; fi", None),
        ("python 'train.py", None),
        ("", None),
    ],
)
def test_the_script_of_a_shells_first_command_is_found(text: str, script: str | None) -> None:
    assert script_of(["sh", "-c", text]) == script


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun", "--nproc-per-node=2", "missing.py"),
        ("python", "-m", "torch.distributed.run", "missing.py"),
        ("sh", "-c", "exec accelerate launch missing.py"),
    ],
)
def test_a_missing_script_is_refused_before_it_restarts_forever(
    cluster: LocalSweeps, command: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput, match="a script of the local environment, not missing"):
        cluster.create(typed(manifest(command=command, restart_policy="OnFailure")))


def test_a_script_that_imports_what_is_missing_is_refused(
    cluster: LocalSweeps, tmp_path: Path
) -> None:
    lines = "import nowhere_a.deep", "from nowhere_b.deep import thing", "from .beside import other"
    (tmp_path / "fit.py").write_text("\n".join(lines))
    with pytest.raises(InvalidInput, match=r"fit\.py imports nowhere_a, nowhere_b, which this"):
        cluster.create(typed(manifest(command=("python", str(tmp_path / "fit.py")))))


SIDE = {"name": "side", "image": "any", "command": ["true"]}


@pytest.mark.parametrize(
    ("pod", "container", "words"),
    [
        (
            {},
            {"command": None},
            f"{PATH}.containers[0].command: this machine needs a command, or the entrypoint of image any",
        ),
        ({}, {"command": ["no-such-program"]}, "command: this machine needs a program"),
        (
            {},
            {"command": ["python", "no-such.py"]},
            "a script of the local environment, not no-such.py",
        ),
        (
            {},
            {"command": ["torchrun", "/app/train.py", "--x"]},
            "a script of the local environment, not /app/train.py",
        ),
        (
            {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]},
            {
                "command": [
                    "python",
                    "-m",
                    "torch.distributed.run",
                    "/workspace/imagenet.py",
                    "--epochs=1",
                ],
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            },
            "a script of the local environment, not /workspace/imagenet.py",
        ),
        ({}, {"command": ["/opt/app/run"]}, "--image-dir any=DIR"),
        ({}, {"envFrom": [{"secretRef": {"name": "s"}}]}, f"{PATH}.containers[0].envFrom"),
        ({}, {"lifecycle": {"preStop": {}}}, f"{PATH}.containers[0].lifecycle"),
        ({}, {"comand": ["x"]}, "not comand"),
        ({}, {"workingDir": "/no/such"}, f"{PATH}.containers[0].workingDir"),
        ({}, {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {}}}]}, "env[0].valueFrom"),
        (
            {},
            {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]},
            "fieldRef.fieldPath",
        ),
        (
            {},
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            "env[0].valueFrom.configMapKeyRef: there is no config map 'c' on this machine",
        ),
        ({}, {"env": [{"name": "X", "value": 1}]}, "in quotes"),
        ({}, {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "volumeMounts[0].name"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            {},
            "volumes[0].persistentVolumeClaim: there is no volume 'c'",
        ),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "c"}}]},
            {},
            "volumes[0].secret: there is no secret 'c'",
        ),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/no/such"}}]}, {}, "hostPath.path"),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/cache"}]},
            "a path that command, args or env name, not /cache",
        ),
        (
            {"containers": [{"name": "pytorch", "image": "any", "command": ["true"]}, SIDE]},
            {},
            "there is also side",
        ),
        ({"activeDeadlineSeconds": 5}, {}, f"{PATH}.activeDeadlineSeconds"),
        ({"containers": "none"}, None, "containers: must be a list"),
        ({"containers": [3]}, None, "an object"),
        ({"volumes": {}}, {}, "volumes: must be a list"),
    ],
)
def test_what_cannot_be_honored_is_refused_with_its_path(
    cluster: LocalSweeps, pod: dict[str, Any], container: dict[str, Any] | None, words: str
) -> None:
    job = manifest(pod if container is not None else {}, {"command": ["true"]} | (container or {}))
    if container is None:
        job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"] |= pod
    with pytest.raises(PodiumError) as error:
        cluster.create(typed(job))
    assert words in str(error.value)
    assert isinstance(error.value, InvalidInput)
    assert not cluster.list("PyTorchJob")
