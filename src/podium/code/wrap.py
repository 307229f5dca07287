"""Let the containers of a job run their command in packed code."""

import shlex
from typing import Any, TypeVar

from podium.code.reference import Code
from podium.errors import InvalidInput
from podium.manifests.experiment.shell import takes_script
from podium.manifests.job_editor import JobEditor
from podium.manifests.resource import Resource

T = TypeVar("T", bound=Resource)


def with_code(
    resource: T, uri: str, *, install_requirements: bool = False, container: str | None = None
) -> T:
    """Return a job, or an Experiment's trials, whose containers fetch code and run their command in
    it.

    Args:
        uri: URI of the code; empty changes nothing.
        install_requirements: Whether to install the code's requirements.txt first.
        container: Name of the containers; None for all.

    Raises:
        InvalidInput: The URI is not one of code, or a container leaves its command to the image.
    """
    if not uri:
        return resource
    code = Code.parse(uri)
    options = ["--install-requirements"] if install_requirements else []
    prefix = ["python", "-m", "podium.code", code.uri, "--digest", code.digest, *options, "--"]

    def change(editor: JobEditor) -> None:
        for _, body in editor.containers(container):
            _wrap(body, prefix)

    return resource.changed_job(change)


def _wrap(container: dict[str, Any], prefix: list[str]) -> None:
    command = [str(word) for word in container.get("command") or []]
    if not command:
        hint = "write the command of the image into the manifest"
        raise InvalidInput(
            f"container {container.get('name')} has no command that could run in the code", hint
        )
    words = [*command, *map(str, container.get("args") or [])]
    if not takes_script(words) or len(words) == 2:
        container["command"] = [*prefix, *command]
        return
    # Katib joins words without quotes unless the first are a shell's, so the shell stays in front.
    script = shlex.join([*prefix, words[0], "-c", words[2]])
    rest = words[3:]
    container["command"] = [*words[:2], f'{script} "$0" "$@"' if rest else script, *rest]
    container.pop("args", None)
