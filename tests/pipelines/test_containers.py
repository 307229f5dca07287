"""Steps whose program is in a container image, run by podman."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from test_podium_run import PODIUM, environment, only_run, podium, within

from podium.runner.step_process import _qualified

pytestmark = pytest.mark.whole

IMAGE = "localhost/podium-test-boats:1"
BOATS = dedent(f"""\
    from kfp import dsl, kubernetes

    @dsl.container_component
    def pack(text: str, crate: dsl.Output[dsl.Dataset], size: dsl.OutputPath(int)):
        script = 'echo "$0" > "$1"; echo 3 > "$2"; cat /secret/key; echo; echo "$TOKEN"'
        return dsl.ContainerSpec(
            image="{IMAGE}",
            command=["sh", "-c", script],
            args=[text, crate.path, size],
        )

    @dsl.component
    def count(crate: dsl.Input[dsl.Dataset], size: int) -> int:
        return size + len(open(crate.path).read())

    @dsl.container_component
    def spoil(crate: dsl.Input[dsl.Dataset]):
        script = 'cat "$0" && ! echo spoiled > "$0"'
        return dsl.ContainerSpec(image="{IMAGE}", command=["sh", "-c", script], args=[crate.path])

    @dsl.container_component
    def wait():
        return dsl.ContainerSpec(image="{IMAGE}", command=["sh", "-c", "echo waits; sleep 600"])

    @dsl.container_component
    def missing():
        return dsl.ContainerSpec(image="registry.invalid/crew/boat:2", command=["true"])

    @dsl.pipeline(name="boats")
    def boats(text: str = "hello") -> int:
        packed = pack(text=text)
        kubernetes.use_secret_as_volume(packed, "keys", "/secret")
        kubernetes.use_secret_as_env(packed, "keys", {{"key": "TOKEN"}})
        spoil(crate=packed.outputs["crate"])
        return count(crate=packed.outputs["crate"], size=packed.outputs["size"]).output

    @dsl.pipeline(name="waiting")
    def waiting():
        wait()

    @dsl.pipeline(name="unknown")
    def unknown():
        missing()
    """)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of a shell and a few programs, made of this machine's."""
    if not shutil.which("podman"):
        pytest.skip("needs podman (apt install podman)")
    root = tmp_path_factory.mktemp("image")
    for program in ("sh", "cat", "ls", "sleep"):
        source = shutil.which(program)
        assert source
        listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
        libraries = [word for word in listed.split() if word.startswith("/")]
        for file, target in [(source, f"/bin/{program}"), *zip(libraries, libraries, strict=True)]:
            place = root / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
    archive = shutil.make_archive(str(tmp_path_factory.mktemp("archive") / "root"), "tar", root)
    subprocess.run(["podman", "import", archive, IMAGE], capture_output=True, check=True)
    tried = ["podman", "run", "--rm", "--network", "host", IMAGE, "/bin/sh", "-c", "exit 0"]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("podman runs no container here")
    return IMAGE


def boats(directory: Path) -> str:
    """Write the pipelines; return the name of their file."""
    (directory / "boats.py").write_text(BOATS)
    (directory / "keys").mkdir(exist_ok=True)
    (directory / "keys/key").write_text("hush")
    return str(directory / "boats.py")


def process_in(name: str) -> int:
    """Return the number of the first process of a container."""
    words = ["podman", "inspect", "--format", "{{.State.Pid}}", name]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.usefixtures("image")
def test_a_program_of_an_image_takes_inputs_and_leaves_outputs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = (f"{boats(tmp_path)}:boats", "--secret", f"keys={tmp_path}/keys")
    done = podium(home, *words)
    assert done.returncode == 0, done.stderr
    assert "Output         9" in done.stdout
    log = (only_run(home) / "logs/pack.log").read_text()
    assert log.split()[-2:] == ["hush", "hush"], "a Secret as a file, and as a variable"
    assert "hello" in (only_run(home) / "logs/spoil.log").read_text(), "and cannot be written"
    left = ["podman", "container", "exists", f"podium-{only_run(home).name}-pack"]
    assert subprocess.run(left, check=False).returncode == 1


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_no_container_outlives_its_run(tmp_path: Path, number: int) -> None:
    home = tmp_path / "home"
    command = [PODIUM, "run", f"{boats(tmp_path)}:waiting"]
    process = subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL)
    try:
        logs = "runs/*/logs/wait.log"
        assert within(60, lambda: any("waits" in log.read_text() for log in home.glob(logs)))
        name = f"podium-{only_run(home).name}-wait"
        inside = Path(f"/proc/{process_in(name)}")
        assert inside.exists()
        process.send_signal(number)
        process.wait(100)
        assert within(120, lambda: not inside.exists())
    finally:
        process.kill()
        process.wait()
    subprocess.run(["podman", "rm", "--force", "--ignore", name], capture_output=True, check=True)


def test_an_image_that_cannot_be_pulled_is_named(tmp_path: Path, image: str) -> None:
    done = podium(tmp_path / "home", f"{boats(tmp_path)}:unknown")
    assert done.returncode == 1
    assert "podman cannot pull its image registry.invalid/crew/boat:2" in done.stderr
    assert image


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python:3.11", "docker.io/library/python:3.11"),
        ("crew/boat", "docker.io/crew/boat"),
        ("localhost/boat", "localhost/boat"),
        ("ghcr.io/crew/boat:2", "ghcr.io/crew/boat:2"),
        ("registry:5000/boat", "registry:5000/boat"),
    ],
)
def test_an_image_without_a_registry_is_docker_hubs(image: str, full: str) -> None:
    assert _qualified(image) == full


def test_without_podman_a_container_is_refused_at_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folders = [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not os.path.exists(os.path.join(folder, "podman"))
    ]
    done = subprocess.run(
        [PODIUM, "run", f"{boats(tmp_path)}:waiting"],
        capture_output=True,
        text=True,
        env={**environment(home), "PATH": os.pathsep.join(folders)},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        f"error: step wait is a program of the container image {IMAGE}, and this machine has no podman",
        f"hint: install podman, or --image-dir {IMAGE}=DIR names a directory that stands in for it",
    ]
    assert not home.exists()
