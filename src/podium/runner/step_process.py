"""The process of a step: a supervised one like podium's own, or the program of a container image,
by podman."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.cluster.local.environment import translator
from podium.cluster.local.supplies import Images
from podium.display.text import size
from podium.errors import Failed, InvalidInput
from podium.runner.compiled import EXECUTOR
from podium.runner.steps import CREATE_VOLUME, DELETE_VOLUME, OWN_IMAGES, Step
from podium.system import supervised
from podium.system.settings import FAILURE, SAFE_PATH


def _needs_image(container: Mapping[str, Any]) -> bool:
    return "ephemeral_component.py" not in " ".join(map(str, container.get("command", ())))


class Process:
    """The process of a step.

    Args:
        step: The step.
        images: Directories that stand in for images.
        python: Directory with the programs of its own environment; None for podium's.
    """

    def __init__(self, step: Step, images: Images, python: Path | None) -> None:
        self.step, self.python = step, python
        self.notices: list[str] = []
        """What its log is to say."""

        self.image = images.find(step.container.get("image", ""))
        self.container = ""
        """Name of the container that it runs in; empty if it is a process like podium's own."""

        if self.image.root is None and _needs_image(step.container):
            run = step.constants["pipeline_job_uuid"]
            self.container = re.sub(r"[^\w.-]+", "-", f"podium-{run}-{step.name}")

    @staticmethod
    def check(name: str, executor: Mapping[str, Any], images: Images) -> None:
        """Refuse a step that this machine cannot run.

        Raises:
            InvalidInput: It needs a container, or is none that a cluster of Kubeflow runs.
        """
        container = executor.get("container")
        if container is None:
            if "importer" not in executor:
                kind = next(iter(executor), "nothing")
                raise InvalidInput(f"step {name} runs {kind}, which only its cloud has")
            return
        image = container.get("image", "")
        if image in (CREATE_VOLUME, DELETE_VOLUME) or images.find(image).root:
            return
        if not _needs_image(container) or shutil.which(_PODMAN):
            return
        words = " ".join(map(str, container.get("command", ())))
        is_python = EXECUTOR in words or "executor_main" in words
        holds = "has its code in the image" if is_python else "is a program of the container image"
        raise InvalidInput(
            f"step {name} {holds} {image}, and this machine has no podman",
            f"install podman, or --image-dir {image}=DIR names a directory that stands in for it",
        )

    def prepare(
        self, extra: Mapping[str, str], mounts: Mapping[str, Path], scratch: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Return command and environment; directories of its outputs are made.

        Args:
            extra: Further variables.
            mounts: Local directory by mount path.
            scratch: Where packages go that the step installs itself.

        Raises:
            InvalidInput: A program of a container does not name a mount path.
        """
        step = self.step
        shutil.rmtree(step.folder, ignore_errors=True)  # outputs of a try that failed
        step.folder.mkdir(parents=True, exist_ok=True)
        inputs = step.component.get("inputDefinitions", {}).get("parameters", {})
        for name in (name for name, of in inputs.items() if of["parameterType"] == "TASK_CONFIG"):
            self.notices.append(f"warning: {name}, a dsl.TaskConfig, is empty on this machine")
        variables = {**step.environment(), **extra}
        command = step.command(variables)
        if self.container:
            variables.pop(FAILURE, None)
            return self._in_container(command, variables, mounts), {**os.environ, **variables}
        for where, here in mounts.items():
            texts = [*command, *step.environment().values()]
            if str(here) == where or any(where in text for text in texts):
                continue
            self.notices.append(f"nothing is mounted at {where}: its code does not name that path")
            if not any("ephemeral_component.py" in word for word in command):
                raise InvalidInput(
                    f"step {step.name}: nothing can be mounted at {where} on this machine, "
                    f"and its code does not name that path",
                    f"pass {where} to it as a parameter",
                )
        translate = translator(mounts.items())
        command = [translate(word) for word in command]
        variables = {name: translate(value) for name, value in variables.items()}
        return command, {**self._environment(scratch), **variables}

    def _in_container(
        self, words: Sequence[str], variables: Mapping[str, str], mounts: Mapping[str, Path]
    ) -> list[str]:
        step, log = self.step, self.notices.append
        own = [str(step.folder), step.constants["workspace_path"]]
        uris = [entry["uri"] for held in step.inputs.artifacts.values() for entry in held]
        read = dict.fromkeys(uri for uri in uris if "://" not in uri and os.path.exists(uri))
        return _command_in(
            _fetch(self.image.name, step.name, log),
            words,
            name=self.container,
            has_command=bool(step.container.get("command")),
            variables=variables,
            volumes=[
                *(f"{here.absolute()}:{where}" for where, here in mounts.items()),
                *(f"{place}:{place}" for place in own),
                *(f"{place}:{place}:ro" for place in read),
            ],
        )

    def _environment(self, scratch: Path) -> dict[str, str]:
        path = self.image.search_path(os.environ.get("PATH", ""))
        own = f"{self.python}{os.pathsep}" if self.python else ""
        env = {**os.environ, "PATH": f"{own}{path}"}
        if self.image.root is None:
            env[SAFE_PATH] = "1"  # a json.py in the user's directory is none of our business
        if self.step.container.get("image") not in OWN_IMAGES:
            # Packages that a step installs itself go where only this run sees them. Python does not
            # look again for a directory that was not there.
            scratch.mkdir(exist_ok=True)
            env["PIP_TARGET"] = str(scratch)
            python_path = env.get("PYTHONPATH", "")
            env["PYTHONPATH"] = (
                f"{scratch}{os.pathsep}{python_path}" if python_path else str(scratch)
            )
        return env

    def start(self, command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start it in a session of its own, supervised: nothing that it starts outlives it or this
        process. What it prints comes from its stdout.

        Raises:
            Failed: A value is too large for a command line.
        """
        supervisor = (sys.executable, "-I", "-S", supervised.__file__)
        try:
            process = subprocess.Popen(
                [*supervisor, self.image.resolve(command[0]), *command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=self.image.root,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            given = size(sum(len(os.fsencode(word)) for word in command))
            raise Failed(
                f"it is given its inputs on the command line, and {given} are too much for one: hand large values on "
                "as an artifact, which is a file"
            ) from None
        return supervised.outlived(process)

    def leave_nothing(self) -> None:
        """Remove its container, of which something is left where it was killed."""
        if self.container:
            _podman("rm", "--force", "--ignore", "--time", "0", self.container)


_PODMAN = "podman"


def _fetch(image: str, step: str, say: Callable[[str], object]) -> str:
    """Return the name under which podman has an image, which is pulled if it has none.

    Args:
        image: As a pod names it: without a registry it is Docker Hub's.
        step: Name of the step, for the error.
        say: Takes a line for the log of the step.

    Raises:
        Failed: It cannot be pulled; the message has podman's reason.
    """
    if _podman("image", "exists", image).returncode == 0:
        return image
    full = _qualified(image)
    if _podman("image", "exists", full).returncode != 0:
        say(f"podman pull {full}")
        pulled = _podman("pull", "--quiet", full)
        if pulled.returncode != 0:
            why = pulled.stderr.strip().splitlines() or [f"exit code {pulled.returncode}"]
            raise Failed(
                f"step {step}: podman cannot pull its image {image}: {why[-1]}",
                f"--image-dir {image}=DIR names a directory that stands in for it",
            )
    return full


def _command_in(
    image: str,
    words: Sequence[str],
    *,
    name: str,
    has_command: bool,
    variables: Iterable[str],
    volumes: Iterable[str],
) -> list[str]:
    """Return the command that runs a program of an image.

    The program is root of its container, which is the caller outside of it: what it writes is the
    caller's. It has this machine's network.

    Args:
        words: Command and arguments of the container.
        has_command: Whether the first word is its program; else the image's entrypoint is.
        variables: Names of its environment; the values come from the environment of this command,
            where no list of processes shows them.
        volumes: ``HERE:THERE`` or ``HERE:THERE:ro`` of each place that it sees.
    """
    options = [
        *("--rm", "--replace", "--name", name, "--network", "host", "--user", "0:0"),
        *("--pull", "never", "--security-opt", "label=disable"),
        *(option for variable in variables for option in ("--env", variable)),
        *(option for volume in volumes for option in ("--volume", volume)),
    ]
    if has_command:
        options += ["--entrypoint", words[0]]
        words = words[1:]
    return [_PODMAN, "run", *options, image, *words]


def _qualified(image: str) -> str:
    # Kubernetes' nodes read the name of an image so.
    host, slash, _ = image.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def _podman(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [_PODMAN, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
