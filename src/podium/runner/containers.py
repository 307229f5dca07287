"""Steps that are programs of container images, by podman."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence

from podium.errors import Failed

PODMAN = "podman"


def has_podman() -> bool:
    """Return whether this machine has podman."""
    return shutil.which(PODMAN) is not None


def fetch(image: str, step: str, say: Callable[[str], object]) -> str:
    """Return the name under which podman has an image, which is pulled if it has none.

    Args:
        image: As a pod names it: without a registry it is Docker Hub's.
        step: Name of the step, for the error.
        say: Takes a line for the log of the step.

    Raises:
        Failed: It cannot be pulled; the message has podman's reason.
    """
    if _run("image", "exists", image).returncode == 0:
        return image
    full = _qualified(image)
    if _run("image", "exists", full).returncode != 0:
        say(f"podman pull {full}")
        pulled = _run("pull", "--quiet", full)
        if pulled.returncode != 0:
            why = pulled.stderr.strip().splitlines() or [f"exit code {pulled.returncode}"]
            raise Failed(
                f"step {step}: podman cannot pull its image {image}: {why[-1]}",
                f"--image-dir {image}=DIR names a directory that stands in for it",
            )
    return full


def command_in(
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
    options = ["--rm", "--replace", "--name", name, "--network", "host", "--user", "0:0"]
    options += ["--pull", "never", "--security-opt", "label=disable"]
    options += [option for variable in variables for option in ("--env", variable)]
    options += [option for volume in volumes for option in ("--volume", volume)]
    if has_command:
        options += ["--entrypoint", words[0]]
        words = words[1:]
    return [PODMAN, "run", *options, image, *words]


def remove(name: str) -> None:
    """Remove what is left of a container: one whose run was killed."""
    _run("rm", "--force", "--ignore", "--time", "0", name)


def name_of(run: str, step: str) -> str:
    """Return the name of a step's container."""
    return re.sub(r"[^\w.-]+", "-", f"podium-{run}-{step}")


def _qualified(image: str) -> str:
    """Return the name of an image as Kubernetes' nodes read it."""
    host, slash, _ = image.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PODMAN, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
