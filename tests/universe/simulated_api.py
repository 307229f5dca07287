"""An API server of a universe: objects, watches, pods and their logs, seen through a bad network."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiException
from simulation import EPOCH, Task, Universe, here
from urllib3.exceptions import ProtocolError

from podium.cluster.kubernetes.api import Api

READS = ("lag", "slow", "broken", "unanswered", "crash", "partition", "denied", "jump")
WRITES = (
    "hitch",
    "denied",
    "slow",
    "broken",
    "unanswered",
    "lost",
    "crash",
    "died",
    "partition",
    "jump",
)
STREAMS = ("lag", "broken", "unanswered", "gone", "cut", "crash", "partition")
LOGS = ("lag", "broken", "unanswered", "cut", "crash", "partition")
_STATUS = {"slow": 429, "broken": 500, "denied": 403, "gone": 410}


def refused(status: int, message: str) -> ApiException:
    """Return a server's refusal."""
    error = ApiException(status=status, reason="refused")
    error.body = json.dumps({"kind": "Status", "code": status, "message": message})
    return error


class Server:
    """What the API server knows."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.version = 100
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.watchers: deque[Task] = deque()
        self.logs: dict[str, list[str]] = {}
        self.created: list[tuple[str, str]] = []
        self.on_create: Callable[[str, dict[str, Any]], None] = lambda plural, item: None
        self.on_write: Callable[[str, str], None] = lambda plural, name: None

    def stamp(self) -> str:
        """Return the server's time."""
        moment = EPOCH + self.universe.now
        return _iso(moment)

    def put(self, plural: str, item: dict[str, Any], event: str = "MODIFIED") -> dict[str, Any]:
        """Store an object and tell who watches."""
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        if event == "ADDED":
            metadata |= {"uid": f"uid-{self.version}", "creationTimestamp": self.stamp()}
        item = {**item, "metadata": metadata}
        self.objects[plural, metadata["name"]] = item
        self.history.append((self.version, event, plural, item))
        self.universe.wake(self.watchers)
        if event == "ADDED":
            self.created.append((plural, metadata["name"]))
            self.on_create(plural, item)
        return item

    def remove(self, plural: str, name: str) -> dict[str, Any] | None:
        """Delete an object with all that it owns."""
        item = self.objects.pop((plural, name), None)
        if item is None:
            return None
        self.version += 1
        gone = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        self.history.append((self.version, "DELETED", plural, gone))
        self.universe.wake(self.watchers)
        for owned, inner in list(self.objects.items()):
            owners = inner["metadata"].get("ownerReferences") or ()
            if any(owner.get("uid") == item["metadata"]["uid"] for owner in owners):
                self.remove(*owned)
        return item

    def named(self, plural: str, name: str) -> dict[str, Any]:
        """Return an object."""
        if (plural, name) not in self.objects:
            raise refused(404, f'{plural} "{name}" not found')
        return self.objects[plural, name]

    def api(self) -> Api:
        """Return a client of a process."""
        api = Api.__new__(Api)
        usual = Api.__init__
        usual(api, _configuration(), "team")
        api.custom, api.core, api.coordination = Custom(self), Core(self), Leases(self)
        api.answered = True
        return api


def _configuration() -> Any:
    from kubernetes.client import Configuration

    configuration = Configuration()
    configuration.host = "http://universe"
    return configuration


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _copy(item: Any) -> Any:
    return json.loads(json.dumps(item))


def _merged(item: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    new = {
        key: _merged(item.get(key) or {}, entry) if isinstance(entry, dict) else entry
        for key, entry in change.items()
    }
    return {key: value for key, value in {**item, **new}.items() if value is not None}


class _Client:
    def __init__(self, server: Server) -> None:
        self.server = server

    def _ask(self, verb: str, plural: str, name: str, possible: tuple[str, ...]) -> str:
        """Send a request over a network that may fail; return what is left of a fault."""
        universe = here()
        process = universe.task().life.process
        recent = universe.now - process.silent_at < 5.0
        # A server denies only as it starts.
        kind = universe.operation(
            f"{verb} {plural} {name}",
            possible if recent else tuple(each for each in possible if each != "denied"),
        )
        if kind == "unanswered":
            universe.sleep(0.1)
        # From here on the process knows of it, and takes a denial for that of a start.
        if kind in ("slow", "broken", "unanswered", "partition", "lost"):
            process.silent_at = universe.now
        if kind == "partition":
            drawn = universe.draw(process.number, process.operations, 2)
            process.apart_until = universe.now + (0.5, 4.0, 8.0, 30.0)[drawn % 4]
        if universe.now < process.apart_until:
            universe.sleep(0.3)
            process.silent_at = universe.now
            raise ProtocolError("no route")
        if kind in _STATUS:
            raise refused(_STATUS[kind], f"{kind}")
        if kind == "unanswered":
            raise ProtocolError("no answer")
        return kind

    @contextmanager
    def _changing(self, verb: str, plural: str, name: str) -> Iterator[None]:
        """Send a request that changes an object; its answer may be lost, and a refusal is one."""
        kind = self._ask(verb, plural, name, WRITES)
        try:
            yield
        finally:
            if kind == "died":
                here().crash()
            if kind == "lost":
                raise ProtocolError("the answer was lost")


class Custom(_Client):
    """As kubernetes.client.CustomObjectsApi."""

    def get_api_resources(self, group: str, version: str, **_: Any) -> Any:
        self._ask("discover", group, version, READS)
        names = ["experiments", "trials"] if group == "kubeflow.org" else ["jobs"]
        return _Named(resources=[_Named(name=name) for name in names])

    def create_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, body: Any, **_: Any
    ) -> Any:
        name = body["metadata"]["name"]
        with self._changing("create", plural, name):
            if (plural, name) in self.server.objects:
                raise refused(409, f"{plural} {name} already exists")
            for owner in body["metadata"].get("ownerReferences") or ():
                uids = {item["metadata"]["uid"] for item in self.server.objects.values()}
                if owner.get("uid") not in uids:  # the garbage collector takes it at once
                    return {**_copy(body), "metadata": {**body["metadata"], "uid": "gone"}}
            item = self.server.put(plural, _copy(body), "ADDED")
            self.server.on_write(plural, name)
        return _copy(item)

    def get_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, name: str, **_: Any
    ) -> Any:
        self._ask("get", plural, name, READS)
        return _copy(self.server.named(plural, name))

    def list_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, **options: Any
    ) -> Any:
        if options.get("watch"):
            kind = self._ask("watch", plural, "", STREAMS)
            return _Stream(self.server, plural, options, cut=kind == "cut")
        self._ask("list", plural, "", READS)
        items = [item for (of, _), item in self.server.objects.items() if of == plural]
        found = [item for item in items if _selected(item, options)]
        return {"items": _copy(found), "metadata": {"resourceVersion": str(self.server.version)}}

    def patch_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, name: str, body: Any, **_: Any
    ) -> Any:
        with self._changing("patch", plural, name):
            change = {key: value for key, value in body.items() if key != "status"}
            item = self.server.put(plural, _merged(self.server.named(plural, name), _copy(change)))
            self.server.on_write(plural, name)
        return _copy(item)

    def patch_namespaced_custom_object_status(
        self, group: str, version: str, namespace: str, plural: str, name: str, body: Any, **_: Any
    ) -> Any:
        with self._changing("patch status of", plural, name):
            change = {"status": body["status"]}
            item = self.server.put(plural, _merged(self.server.named(plural, name), _copy(change)))
            self.server.on_write(plural, name)
        return _copy(item)

    def delete_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, name: str, **_: Any
    ) -> Any:
        with self._changing("delete", plural, name):
            self.server.named(plural, name)
            self.server.remove(plural, name)
            self.server.on_write(plural, name)
        return {}


class _Named:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def _selected(item: dict[str, Any], options: dict[str, Any]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for pair in (options.get("label_selector") or "").split(","):
        name, _, value = pair.partition("=")
        if name and labels.get(name) != value:
            return False
    field = (options.get("field_selector") or "").removeprefix("metadata.name=")
    return field in ("", item["metadata"]["name"])


class _Stream:
    """The answer to a watch, line by line."""

    status, headers = 200, {"Content-Type": "application/json"}

    def __init__(self, server: Server, plural: str, options: dict[str, Any], *, cut: bool) -> None:
        self._server, self._plural, self._options, self._cut = server, plural, options, cut

    def stream(self, **_: Any) -> Iterator[bytes]:
        universe, server = here(), self._server
        version = int(self._options["resource_version"])
        end = universe.now + float(self._options["timeout_seconds"])
        process = universe.task().life.process
        at = len(server.history)
        while at and server.history[at - 1][0] > version:
            at -= 1
        while True:
            while at < len(server.history):
                _, event, plural, item = server.history[at]
                at += 1
                if plural == self._plural and _selected(item, self._options):
                    if universe.now < process.apart_until:
                        raise ProtocolError("no route")
                    line = json.dumps({"type": event, "object": item}).encode() + b"\n"
                    if self._cut:
                        yield line[: len(line) // 2]
                        raise ProtocolError("the connection broke")
                    yield line
            left = end - universe.now
            if left <= 0:
                return
            universe.block(server.watchers, left)

    def close(self) -> None:
        pass

    release_conn = close


class Core(_Client):
    """As kubernetes.client.CoreV1Api."""

    def list_namespaced_pod(self, namespace: str, label_selector: str = "", **_: Any) -> Any:
        self._ask("list", "pods", "", READS)
        pods = [item for (plural, _), item in self.server.objects.items() if plural == "pods"]
        found = [pod for pod in pods if _selected(pod, {"label_selector": label_selector})]
        return Seen({"items": _copy(found)})

    def list_namespaced_event(self, namespace: str, **_: Any) -> Any:
        self._ask("list", "events", "", READS)
        return _Named(items=[])

    def read_namespaced_pod_log(self, name: str, namespace: str, **options: Any) -> Any:
        kind = self._ask("read log of", "pods", name, LOGS)
        self.server.named("pods", name)
        return _Log(self.server, name, follow=options["follow"], cut=kind == "cut")


class _Log:
    def __init__(self, server: Server, pod: str, *, follow: bool, cut: bool) -> None:
        self._server, self._pod, self._follow, self._cut = server, pod, follow, cut

    def stream(self, **_: Any) -> Iterator[bytes]:
        universe, server, sent = here(), self._server, 0
        while True:
            lines = server.logs.get(self._pod, [])
            for line in lines[sent:]:
                if self._cut:
                    yield line.encode()[: len(line) // 2]
                    raise ProtocolError("the connection broke")
                yield line.encode() + b"\n"
            sent = len(lines)
            pod = server.objects.get(("pods", self._pod))
            if not self._follow or not pod or pod["status"]["phase"] in ("Succeeded", "Failed"):
                return
            universe.block(server.watchers, 60.0)

    def close(self) -> None:
        pass

    release_conn = close


class Seen:
    """An object as kubernetes.client has it: fields by attributes, None where there is none."""

    def __init__(self, plain: dict[str, Any]) -> None:
        self.__dict__["_plain"] = plain

    def __getattr__(self, name: str) -> Any:
        head, *rest = name.split("_")
        value = self._plain.get(head + "".join(word.capitalize() for word in rest))
        if name.endswith(("_time", "_timestamp", "_at")) and isinstance(value, str):
            return datetime.fromisoformat(value)
        if isinstance(value, dict) and name != "labels":
            return Seen(value)
        if isinstance(value, list):
            return [Seen(each) if isinstance(each, dict) else each for each in value]
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        head, *rest = name.split("_")
        self._plain[head + "".join(word.capitalize() for word in rest)] = value

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return _copy(self._plain)


class Leases(_Client):
    """As kubernetes.client.CoordinationV1Api."""

    def read_namespaced_lease(self, name: str, namespace: str, **_: Any) -> Any:
        self._ask("read", "leases", name, READS)
        return Seen(_copy(self.server.named("leases", name)))

    def create_namespaced_lease(self, namespace: str, body: Any, **_: Any) -> Any:
        name = body["metadata"]["name"]
        with self._changing("create", "leases", name):
            if ("leases", name) in self.server.objects:
                raise refused(409, f"lease {name} already exists")
            item = self.server.put("leases", _copy(body), "ADDED")
        return Seen(_copy(item))

    def replace_namespaced_lease(self, name: str, namespace: str, body: Any, **_: Any) -> Any:
        with self._changing("write", "leases", name):
            item = self.server.named("leases", name)
            given = body.plain()
            if given["metadata"].get("resourceVersion") != item["metadata"]["resourceVersion"]:
                raise refused(409, "the object has been modified")
            item = self.server.put("leases", given)
        return Seen(_copy(item))

    def delete_namespaced_lease(self, name: str, namespace: str, body: Any = None, **_: Any) -> Any:
        with self._changing("delete", "leases", name):
            item = self.server.named("leases", name)
            wanted = body["preconditions"]["resourceVersion"] if body else None
            if wanted not in (None, item["metadata"]["resourceVersion"]):
                raise refused(409, "the object has been modified")
            self.server.remove("leases", name)
