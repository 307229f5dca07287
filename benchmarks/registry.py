"""Measure listings, uploads and downloads of the registry: `python benchmarks/registry.py [URL]`.

For a MinIO server set MINIO_ENDPOINT and keys; its own clients, minio-py and mc if ways, run beside podium.
Prints one JSON object; the figures in docs/benchmarks.md come from here.
"""

import argparse
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from minio import Minio

from podium.models import open_registry
from podium.models.document import seal, sha256_of
from podium.models.ledger import Ledger
from podium.models.version import FileRecord, Version, check_metadata
from podium.storage import Storage, connect
from podium.storage.s3.storage import S3Storage


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Return the best of some runs."""
    times = []
    for _ in range(repeat):
        os.sync()  # what others left to be written is not ours
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return round(min(times), 3)


def fill(storage: Storage, count: int) -> None:
    """Write metadata and document as so many uploads would have."""

    def write(number: int) -> tuple[str, str]:
        metadata, facts = check_metadata(
            {
                "run_id": f"run-{number:05d}",
                "metrics": {"accuracy": 0.99},
                "dataset": {"digest": "d" * 64},
            }
        )
        version = Version(
            storage=storage, name="many", version=f"run-{number:05d}", created=datetime.now(UTC),
            files={"model.onnx": FileRecord(sha256="0" * 64, size=5_000_000)}, metadata=metadata, facts=facts,
        )  # fmt: skip
        content = seal(version.document())
        storage.put(f"{version.prefix}/metadata.json", content)
        return version.version, sha256_of(content)[0]

    with ThreadPoolExecutor(8) as pool:
        versions = dict(pool.map(write, range(count)))
    Ledger(storage, "many").change(lambda state: replace(state, versions=versions))


def clients(
    storage: Storage, source: Path, target: Path
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return upload and download of one file: podium's, and for a bucket those of MinIO's own clients."""
    model = open_registry(storage.url).model("big")
    numbers = itertools.count()
    last: list[str] = []

    def upload() -> None:
        last[:] = [model.upload({"model.bin": source}, {}, f"v{next(numbers)}").version]

    def fetch() -> None:
        shutil.rmtree(target, ignore_errors=True)
        model.version(last[0]).fetch(target)

    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "podium.storage": (
            lambda: storage.put("big", source),
            lambda: storage.fetch("big", target.with_suffix(".1")),
        ),
        "podium.registry": (upload, fetch),
    }
    if not isinstance(storage, S3Storage):
        return ways
    config, name, key = storage.config, storage.bucket, f"{storage.prefix}/theirs".lstrip("/")
    plain = Minio(
        endpoint=config.endpoint,
        secure=config.secure,
        region=config.region,
        credentials=config.provider,
    )
    ways["minio-py"] = (
        lambda: plain.fput_object(bucket_name=name, object_name=key, file_path=str(source)),
        lambda: plain.fget_object(
            bucket_name=name, object_name=key, file_path=str(target.with_suffix(".2"))
        ),
    )
    if shutil.which("mc"):
        keys = config.provider.retrieve()
        there = config.url.replace("://", f"://{keys.access_key}:{keys.secret_key}@")
        environ = {
            **os.environ,
            "MC_HOST_here": there,
            "MC_CONFIG_DIR": str(target.with_suffix(".mc")),
        }

        def mc(*paths: str) -> None:
            subprocess.run(
                ["mc", "cp", "--quiet", *paths], env=environ, check=True, stdout=subprocess.DEVNULL
            )

        remote = f"here/{name}/{key}-mc"
        ways["mc"] = (
            lambda: mc(str(source), remote),
            lambda: mc(remote, str(target.with_suffix(".3"))),
        )
    return ways


def transfers(storage: Storage, megabytes: int, repeat: int) -> dict[str, dict[str, int]]:
    """Return the median MB/s of each client, up and down; they take turns."""
    times: dict[str, tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "source", Path(directory) / "target"
        with source.open("wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(1 << 20))
        for _ in range(repeat):
            for name, (up, down) in clients(storage, source, target).items():
                taken = times.setdefault(name, ([], []))
                taken[0].append(seconds(up, repeat=1))
                taken[1].append(seconds(down, repeat=1))
                for entry in list(storage.list()):
                    storage.delete(entry.key)

    def speed(taken: list[float]) -> int:
        return round(megabytes * 1.048576 / statistics.median(taken))

    return {
        name: {"up_MB_per_s": speed(up), "down_MB_per_s": speed(down)}
        for name, (up, down) in times.items()
    }


def listings(storage: Storage, count: int) -> dict[str, float]:
    """Return how long a listing takes."""
    model = open_registry(storage.url).model("many")
    fill(storage, count)
    taken = seconds(lambda: model.versions)
    remove = lambda entry: storage.delete(entry.key)  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remove, list(storage.list())))
    return {"versions": count, "list_s": taken}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?", help="a storage; a temporary directory if missing")
    parser.add_argument("--versions", type=int, default=10_000, help="to list; 0 leaves it out")
    parser.add_argument(
        "--megabytes", type=int, default=512, help="of the file that travels; 0 leaves it out"
    )
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = (given.url or f"file://{folder}").rstrip("/")
        storage = connect(f"{url}/bench-{uuid.uuid4().hex[:8]}", create=True)
        result: dict[str, object] = {"storage": url.split("://")[0]}
        if given.versions:
            result |= listings(storage, given.versions)
        if given.megabytes:
            result |= {
                "megabytes": given.megabytes,
                **transfers(storage, given.megabytes, given.repeat),
            }
    result["peak_memory_MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
