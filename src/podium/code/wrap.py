"""Let the containers of a job run their command in packed code."""

from typing import TypeVar

from podium.code.reference import Code
from podium.manifests.experiment.trainer import run_by
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
            run_by(body, prefix)

    return resource.changed_job(change)
