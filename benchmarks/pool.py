"""Measure what a pool asks of engine, API server and storage: the real engine, workers that only sleep.

    python benchmarks/pool.py --trials 10000 --workers 200 --seconds 10 --algorithm tpe

The API server is the tests' in memory, the storage a directory; 200 threads speak the workers' side of the protocol and
take `--seconds` a trial, half to one and a half times as long at random. Prints the ideal and the real time, requests a
second of engine and workers to the storage and of the engine to the API server, the engine's CPU and the sampler's
share of it, and the memory of the process, which holds all of that.
"""

import argparse
import functools
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from machine import describe

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from api_server import ApiServer

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.conditions import timestamp
from podium.manifests.labels import POOL_STATE
from podium.manifests.options import annotation
from podium.metrics import Reading
from podium.search.search import Search
from podium.storage.files import FileStorage
from podium.sweeps.engine import Engine
from podium.sweeps.pool_store import PoolStore, TrialEnd
from podium.sweeps.worker import LONGEST_SECONDS, SHORTEST_SECONDS

COUNTS: Counter[str] = Counter()


def count(kind: str) -> None:
    """Count the calls of a method of the storage, workers' apart from the engine's."""
    method = getattr(FileStorage, kind)

    @functools.wraps(method)
    def counted(*args: Any, **options: Any) -> Any:
        COUNTS["worker" if threading.current_thread().name.startswith("worker-") else "engine"] += 1
        return method(*args, **options)

    setattr(FileStorage, kind, counted)


def experiment(trials: int, workers: int, algorithm: str) -> dict[str, Any]:
    """Return an Experiment over four numbers."""
    names = [f"x{place}" for place in range(4)]
    container = {
        "name": "main",
        "image": "any",
        "command": ["true", *(f"${{trialParameters.{x}}}" for x in names)],
    }
    job = {
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "pool", "annotations": annotation({"pool": workers})},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"},
            "algorithm": {"algorithmName": algorithm},
            "maxTrialCount": trials,
            "parallelTrialCount": workers,
            "parameters": [
                {"name": x, "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}
                for x in names
            ],
            "trialTemplate": {
                "primaryContainerName": "main",
                "trialParameters": [{"name": x, "reference": x} for x in names],
                "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": job},
            },
        },
    }


def work(url: str, uid: str, seconds: float, over: threading.Event) -> None:
    """Take trials and leave their ends as a worker does, without running anything."""
    store, last, pause = PoolStore(url), "", SHORTEST_SECONDS
    while not over.wait(pause):
        trial = store.given(uid)
        if trial is None or trial.name == last:
            pause = min(LONGEST_SECONDS, 1.5 * pause)
            continue
        time.sleep(seconds * random.uniform(0.5, 1.5))
        loss = sum((float(value) - 0.3) ** 2 for value in trial.assignments.values())
        ended = trial.with_metrics(
            {"loss": {"min": f"{loss}", "max": f"{loss}", "latest": f"{loss}"}}
        )
        ended = ended.with_condition("Succeeded", "TrialSucceeded", "Trial has succeeded")
        ended = ended.with_status({**ended.status, "completionTime": timestamp("milliseconds")})
        reading = Reading("loss", f"{loss}", trial_time())
        store.put_end(trial.name, uid, TrialEnd.of(ended, [reading]), b"")
        last, pause = trial.name, SHORTEST_SECONDS


def trial_time() -> Any:
    """Return now."""
    from datetime import UTC, datetime

    return datetime.now(UTC)


def main() -> None:
    """Run one sweep and print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--algorithm", default="tpe")
    args = parser.parse_args()
    for kind in ("put", "read", "list", "delete"):
        count(kind)
    asked = 0.0
    ask = Search.ask

    def timed(self: Search, name: str) -> Any:
        nonlocal asked
        began = time.thread_time()
        try:
            return ask(self, name)
        finally:
            asked += time.thread_time() - began

    Search.ask = timed  # type: ignore[method-assign]
    server = ApiServer()
    server.world.katib = False
    server.start()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "kubeconfig").write_text(server.kubeconfig())
        os.environ["KUBECONFIG"] = f"{directory}/kubeconfig"
        cluster, over = KubernetesCluster("kubernetes://team"), threading.Event()
        engine = Engine(
            cluster,
            holder="engine",
            image="podium",
            storage=f"file://{directory}/store",
            report=print,
        )
        threading.Thread(target=engine.run, daemon=True).start()
        server.world.put(
            "experiments", experiment(args.trials, args.workers, args.algorithm), "ADDED"
        )
        while not (
            url := server.world.objects["experiments", "pool"]["metadata"]["annotations"].get(
                POOL_STATE
            )
        ):
            time.sleep(0.1)
        began, cpu = time.monotonic(), time.process_time()
        for number in range(args.workers):
            uid = f"pod-{number}"
            labels = {"job-name": "pool-pool"}
            status = {"phase": "Running", "containerStatuses": []}
            server.world.put("pods", {"metadata": {"name": uid, "uid": uid, "labels": labels},
                                      "spec": {"containers": [{"name": "main"}]}, "status": status})  # fmt: skip
            threading.Thread(
                target=work, args=(url, uid, args.seconds, over), name=f"worker-{uid}", daemon=True
            ).start()
        before, requests = Counter(COUNTS), len(server.world.requests)
        while (
            not server.world.objects["experiments", "pool"].get("status", {}).get("completionTime")
        ):
            time.sleep(0.5)
        wall, cpu = time.monotonic() - began, time.process_time() - cpu
        status = server.world.objects["experiments", "pool"]["status"]
        over.set()
        engine.stop()
    ideal = args.trials / args.workers * args.seconds
    storage = {who: COUNTS[who] - before[who] for who in ("engine", "worker")}
    print(f"{describe()}\n{args.trials} trials, {args.workers} workers, {args.seconds:g} s a trial, {args.algorithm}: "
          f"{status.get('trialsSucceeded')} succeeded")  # fmt: skip
    print(f"ideal {ideal:.0f} s, real {wall:.0f} s, {100 * (wall / ideal - 1):.1f} % more")
    asked_api = len(server.world.requests) - requests
    print(f"requests a second: engine to storage {storage['engine'] / wall:.1f}, all workers to storage "
          f"{storage['worker'] / wall:.1f}, engine to API server {asked_api / wall:.1f}")  # fmt: skip
    print(f"CPU {cpu:.0f} s of which sampler {asked:.0f} s; "
          f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")  # fmt: skip
    os._exit(0)


if __name__ == "__main__":
    main()
