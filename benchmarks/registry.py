"""Measure listings, uploads and downloads of the registry: `python benchmarks/registry.py [URL]`.

URL is a storage as podium takes it; a temporary directory if missing. For a MinIO server set MINIO_ENDPOINT and keys.
Prints one JSON object; the figures in the README come from here.
"""

import json
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from podium.registry import open_registry
from podium.registry.document import seal
from podium.registry.version import FileRecord, Version
from podium.storage import Storage, connect

VERSIONS = 10_000
MEGABYTES = 512


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Return the best of some runs."""
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return round(min(times), 3)


def fill(storage: Storage, count: int) -> None:
    """Write metadata as so many uploads would have."""

    def one(number: int) -> None:
        version = Version(
            name="many", version=f"run-{number:05d}", created=datetime.now(UTC),
            files={"model.onnx": FileRecord(sha256="0" * 64, size=5_000_000)},
            metadata={"run_id": f"run-{number:05d}", "metrics": {"accuracy": 0.99}, "dataset": {"digest": "d" * 64}},
        )  # fmt: skip
        storage.put(f"{version.prefix}/metadata.json", seal(version.document()))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(count)))


def main(url: str) -> None:
    """Measure and print."""
    storage = connect(f"{url}/bench-{uuid.uuid4().hex[:8]}", create=True)
    registry = open_registry(storage.url)
    fill(storage, VERSIONS)
    first = seconds(lambda: registry.versions("many"), repeat=1)
    listing = seconds(lambda: registry.versions("many"))
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "source", Path(directory) / "target"
        block = uuid.uuid4().bytes * 65536
        with source.open("wb") as file:
            for _ in range(MEGABYTES):
                file.write(block)
        up = seconds(lambda: storage.put("big", source))
        down = seconds(lambda: storage.fetch("big", target))
    for entry in list(storage.list()):
        storage.delete(entry.key)
    print(json.dumps({
        "storage": url.split("://")[0], "versions": VERSIONS,
        "list_without_index_s": first, "list_s": listing,
        "upload_MB_per_s": round(MEGABYTES * 1.048576 / up), "download_MB_per_s": round(MEGABYTES * 1.048576 / down),
        "peak_memory_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1].rstrip("/"))
    else:
        with tempfile.TemporaryDirectory() as place:
            main(f"file://{place}")
