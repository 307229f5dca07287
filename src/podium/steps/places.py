"""Where a step finds its cluster and its storage if the pipeline does not say."""

from urllib.parse import urlsplit

from podium.errors import PodiumError
from podium.identity import RunIdentity
from podium.pod import pod_namespace


def cluster_url(given: str) -> str:
    """Return the cluster a step launches on: the given one, else the one its own pod runs in.

    Raises:
        PodiumError: None is given and this is no pod.
    """
    if given or pod_namespace() is not None:
        return given or f"kubernetes://{pod_namespace()}"
    raise PodiumError("no cluster is given and this is no pod", "cluster=kubernetes://NAMESPACE or local:///DIRECTORY")


def storage_url(given: str, beside: str) -> str:
    """Return the storage models are kept in: the given one, else ``podium`` in the bucket of the run's artifacts.

    Args:
        given: What the pipeline says; may be empty.
        beside: URI of any artifact of the run.

    Raises:
        PodiumError: None is given and the artifact lies in no bucket.
    """
    if given:
        return given.rstrip("/")
    parts = urlsplit(beside)
    if parts.scheme in ("s3", "minio") and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}/podium"
    raise PodiumError(f"no storage is given and {beside} lies in no bucket", "storage=s3://BUCKET or a directory")


def model_url(storage: str, run: RunIdentity, name: str) -> str:
    """Return where a job of a run leaves its model directory.

    Args:
        storage: URL of the storage.
        run: The run.
        name: Of the job; trials write below ``trials/<name of the trial>``.
    """
    return f"{storage}/runs/{run.id}/{name}"
