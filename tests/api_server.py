"""A small Kubernetes API server in memory: objects, list and watch, pods and their logs, over real HTTP.

It keeps the parts of the protocol the client depends on (resource versions, watch windows, 410, Status bodies) and can
be told to misbehave: forget old versions, cut connections, ask to slow down, stop and start on the same port. How long
a second of a watch takes is World.second.
"""

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from podium.cluster.kubernetes.api import RESOURCES
from podium.errors import InvalidInput

COLLECTION = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/(?P<version>[^/]+))/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?P<log>/log)?(?P<status>/status)?$"
)
_PIECE = 1 << 15
"""Bytes of a log that are sent at once."""

GROUP = re.compile(r"^/apis/(?P<group>[^/]+)/(?P<version>[^/]+)/?$")
NAMESPACE = re.compile(r"^/api/v1/namespaces/(?P<name>[^/]+)$")


class World:
    """What the server knows, and how it misbehaves."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.oldest = 0
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.plurals = {
            "pytorchjobs",
            "trainjobs",
            "jobs",
            "experiments",
            "trials",
            "pods",
            "workflows",
            "events",
            "leases",
        }
        self.with_status = {"experiments", "trials"}
        self.katib = True
        self.logs: dict[str, list[str]] = {}
        self.stamp = lambda number: f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000000000Z"
        self.kubelet_says: list[str] = []  # each once, with 200, in place of a log
        self.refusals: list[tuple[int, Any]] = []
        self.requests: list[str] = []
        self.accepted: list[str] = []
        self.connections: list[Any] = []
        self.labels: dict[str, str] = {}
        self.watches = True
        self.second = 1.0
        self.lost_answers = 0
        self.missing_versions: set[str] = set()
        self.forbidden: set[str] = set()
        self.admit: Callable[[dict[str, Any]], Any] = lambda item: item

    def put(self, plural: str, item: dict[str, Any], event: str = "MODIFIED") -> dict[str, Any]:
        """Store an object and tell the watchers."""
        with self.changed:
            self.version += 1
            key = (plural, item["metadata"]["name"])
            before = self.objects.get(key, {}).get("metadata", {})
            meta = {
                "uid": f"uid-{self.version}",
                "creationTimestamp": f"2026-01-01T00:00:{self.version % 60:02d}Z",
            }
            kept = {name: before[name] for name in meta if name in before}
            item = {
                **item,
                "metadata": {
                    **meta,
                    **item["metadata"],
                    **kept,
                    "resourceVersion": str(self.version),
                },
            }
            self.objects[key] = item
            self.history.append((self.version, event, plural, item))
            self.changed.notify_all()
            return item

    def remove(self, plural: str, name: str) -> dict[str, Any] | None:
        """Delete an object, its pods with it."""
        with self.changed:
            item = self.objects.pop((plural, name), None)
            if item:
                self.version += 1
                gone = {
                    **item,
                    "metadata": {**item["metadata"], "resourceVersion": str(self.version)},
                }
                self.history.append((self.version, "DELETED", plural, gone))
                self.changed.notify_all()
            return item

    def status(self, plural: str, name: str, *conditions: str, **more: Any) -> None:
        """Give an object conditions, all True."""
        listed = [
            {"type": condition, "status": "True", "message": f"{name} is {condition}"}
            for condition in conditions
        ]
        self.put(plural, {**self.objects[plural, name], "status": {"conditions": listed, **more}})

    def pod(self, name: str, labels: dict[str, str], **status: Any) -> None:
        """Make or change a pod of one container called pytorch."""
        spec = {"containers": [{"name": "pytorch"}]}
        self.put(
            "pods", {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
        )

    def event(self, plural: str, name: str, reason: str, message: str) -> None:
        """Warn about an object."""
        item = self.objects[plural, name]
        about = {"kind": item.get("kind"), "name": name, "uid": item["metadata"]["uid"]}
        metadata = {"name": f"{name}.{self.version}"}
        event = {"type": "Warning", "reason": reason, "message": message, "involvedObject": about}
        self.put(
            "events",
            {
                "metadata": metadata,
                "lastTimestamp": f"2026-01-01T00:00:{self.version % 60:02d}Z",
                **event,
            },
        )

    def forget_history(self) -> None:
        """Answer watches from before now with 410, as etcd does after compaction."""
        with self.changed:
            self.oldest = self.version + 1
            self.version += 2

    def cut(self) -> None:
        """Break every open connection."""
        for connection in list(self.connections):
            with suppress(OSError):  # the other side was faster
                connection.shutdown(2)


def merged(item: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Apply a merge patch: None removes a field."""
    new = {
        key: merged(item.get(key) or {}, entry) if isinstance(entry, dict) else entry
        for key, entry in change.items()
    }
    return {key: value for key, value in {**item, **new}.items() if value is not None}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # or an answer's body waits 40 ms for the client to acknowledge its head
    )
    world: World

    def setup(self) -> None:
        super().setup()
        self.world.connections.append(self.connection)

    def finish(self) -> None:
        self.world.connections.remove(self.connection)
        super().finish()

    def log_message(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def answer(self, code: int, body: Any, **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header(
            "Content-Type", "text/plain" if isinstance(body, str) else "application/json"
        )
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code: int, message: str, reason: str = "") -> None:
        self.answer(code, {"kind": "Status", "code": code, "reason": reason, "message": message})

    def stream(self, pieces: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def begin(self) -> tuple[re.Match[str] | None, dict[str, str], Any]:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.world.requests.append(f"{self.command} {self.path}")
        self.world.accepted.append(self.headers.get("Accept") or "")
        return (
            COLLECTION.match(url.path),
            {key: values[-1] for key, values in parse_qs(url.query).items()},
            body,
        )

    def turned_away(self, match: re.Match[str] | None) -> bool:
        if self.world.refusals:
            code, body = self.world.refusals.pop(0)
            self.answer(code, body)
            return True
        if match and self.world.forbidden & {match["plural"], match["namespace"]}:
            self.refuse(
                403, f'{match["plural"]} is forbidden: User "x" cannot list resource', "Forbidden"
            )
            return True
        unknown = match is None or match["plural"] not in self.world.plurals
        if unknown or (
            match and f"{match['group']}/{match['version']}" in self.world.missing_versions
        ):
            self.answer(404, "404 page not found\n")
            return True
        return False

    def do_POST(self) -> None:
        match, _, body = self.begin()
        if self.turned_away(match):
            return
        assert match
        if beginning := body["metadata"].get("generateName"):
            body["metadata"]["name"] = f"{beginning}{self.world.version}"
        if (match["plural"], body["metadata"]["name"]) in self.world.objects:
            self.refuse(
                409, f'{match["plural"]}.kubeflow.org "{body["metadata"]["name"]}" already exists'
            )
            return
        try:
            self.world.admit(body)
        except InvalidInput as error:
            self.refuse(422, str(error), "Invalid")
            return
        item = self.world.put(match["plural"], body, "ADDED")
        if self.world.lost_answers:
            self.world.lost_answers -= 1
            self.refuse(504, "request did not complete within the allotted timeout", "Timeout")
        else:
            self.answer(201, item)

    def do_PATCH(self) -> None:
        match, _, body = self.begin()
        if self.turned_away(match):
            return
        assert match
        with self.world.changed:
            item = self.world.objects.get((match["plural"], match["name"]))
            if item is None and "apply" in (self.headers.get("Content-Type") or ""):
                item = {"metadata": {"name": match["name"]}}
            if (
                match["plural"] in self.world.with_status
            ):  # a subresource: each request changes its own part alone
                body = {
                    key: value
                    for key, value in body.items()
                    if (key == "status") == bool(match["status"])
                }
            changed = self.world.put(match["plural"], merged(item, body)) if item else None
        self.answer(200, changed) if changed else self.refuse(404, f'"{match["name"]}" not found')

    def do_PUT(self) -> None:
        match, _, body = self.begin()
        if self.turned_away(match):
            return
        assert match
        with self.world.changed:
            item = self.world.objects.get((match["plural"], match["name"]))
            given = body["metadata"].get("resourceVersion")
            stale = item and given not in (None, item["metadata"]["resourceVersion"])
            changed = self.world.put(match["plural"], body) if item and not stale else None
        if stale:
            self.refuse(
                409,
                f'Operation cannot be fulfilled on "{match["name"]}": the object has been modified',
                "Conflict",
            )
        else:
            self.answer(200, changed) if changed else self.refuse(
                404, f'"{match["name"]}" not found'
            )

    def do_DELETE(self) -> None:
        match, _, body = self.begin()
        if self.turned_away(match):
            return
        assert match
        wanted = ((body or {}).get("preconditions") or {}).get("resourceVersion")
        with self.world.changed:
            present = self.world.objects.get((match["plural"], match["name"]))
            stale = present and wanted not in (None, present["metadata"]["resourceVersion"])
            item = None if stale else self.world.remove(match["plural"], match["name"])
        if stale:
            self.refuse(409, "Precondition failed: ResourceVersion", "Conflict")
        elif item is None:
            self.refuse(404, f'"{match["name"]}" not found')
        else:
            self.answer(200, item)

    def do_GET(self) -> None:
        namespace, group = (
            pattern.match(urlsplit(self.path).path) for pattern in (NAMESPACE, GROUP)
        )
        match, query, _ = self.begin()
        if group and not self.world.refusals:
            self.answer(*self.kinds_of(group["group"], group["version"]))
            return
        if namespace and "namespaces" in self.world.forbidden:
            self.refuse(403, 'namespaces is forbidden: User "x" cannot get resource', "Forbidden")
        elif namespace and not self.world.refusals:
            self.answer(200, {"metadata": {"name": namespace["name"], "labels": self.world.labels}})
        elif self.turned_away(match):
            return
        elif match and match["log"]:
            self.stream(self.log_lines(match["name"], query))
        elif match and match["name"]:
            item = self.world.objects.get((match["plural"], match["name"]))
            self.answer(200, item) if item else self.refuse(404, f'"{match["name"]}" not found')
        elif match and query.get("watch") and not self.world.watches:
            self.refuse(500, "watches are cut by a proxy", "InternalError")
        elif match and query.get("watch"):
            self.stream(self.events(match["plural"], query))
        elif match:
            found = [item for item in self.items(match["plural"]) if self.selected(item, query)]
            # A list of metadata alone that is empty is null, not [] (observed on 1.34).
            metadata_only = "PartialObjectMetadataList" in (self.headers.get("Accept") or "")
            items = None if metadata_only and not found else found
            self.answer(
                200, {"metadata": {"resourceVersion": str(self.world.version)}, "items": items}
            )

    def kinds_of(self, group: str, version: str) -> tuple[int, Any]:
        known = [
            resource
            for resource in RESOURCES.values()
            if (resource.group, resource.version) == (group, version)
        ]
        names = [resource.plural for resource in known if resource.plural in self.world.plurals]
        names += ["suggestions"] if "experiments" in names and self.world.katib else []
        common = {"kind": "", "namespaced": True, "singularName": "", "verbs": ["get"]}
        listed = {
            "groupVersion": f"{group}/{version}",
            "resources": [{"name": name, **common} for name in names],
        }
        return (200, listed) if names else (404, "404 page not found\n")

    def items(self, plural: str) -> list[dict[str, Any]]:
        return [item for (kind, _), item in self.world.objects.items() if kind == plural]

    def selected(self, item: dict[str, Any], query: dict[str, str]) -> bool:
        wanted = [
            pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if "=" in pair
        ]
        present = [
            key
            for key in query.get("labelSelector", "").split(",")
            if re.fullmatch(r"[\w./-]+", key)
        ]
        labels = item["metadata"].get("labels") or {}
        fields = [
            pair.split("=", 1) for pair in query.get("fieldSelector", "").split(",") if "=" in pair
        ]
        return (
            all(labels.get(key) == value for key, value in wanted)
            and labels.keys() >= set(present)
            and all(
                str(functools.reduce(lambda part, name: part.get(name, {}), key.split("."), item))
                == value
                for key, value in fields
            )
        )

    def events(self, plural: str, query: dict[str, str]) -> Iterator[bytes]:
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        world, version = self.world, int(query["resourceVersion"])
        end = time.monotonic() + float(query["timeoutSeconds"]) * world.second
        if version < world.oldest:
            status = {
                "kind": "Status",
                "code": 410,
                "reason": "Expired",
                "message": "too old resource version",
            }
            yield json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
            return
        while time.monotonic() < end:
            with world.changed:
                news = [
                    entry for entry in world.history if entry[0] > version and entry[2] == plural
                ]
                if not news:
                    world.changed.wait(0.05)
            for number, event, _, item in news:
                version = number
                if name in ("", item["metadata"]["name"]):
                    yield json.dumps({"type": event, "object": item}).encode() + b"\n"

    def log_lines(self, pod: str, query: dict[str, str]) -> Iterator[bytes]:
        sent = 0
        if self.world.kubelet_says:
            yield self.world.kubelet_says.pop().encode()
            return
        while True:
            lines = self.world.logs.get(pod, [])
            for number, line in enumerate(lines[sent:], start=sent):
                stamp = f"{self.world.stamp(number)} " if query.get("timestamps") == "True" else ""
                data = f"{stamp}{line}\n".encode()
                yield from (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
            sent = len(lines)
            phase = self.world.objects.get(("pods", pod), {}).get("status", {}).get("phase")
            if query.get("follow") != "True" or phase in (None, "Succeeded", "Failed"):
                return
            time.sleep(0.02)


class ApiServer:
    """The server on a port of its own; `with ApiServer() as server:`."""

    def __init__(self) -> None:
        self.world = World()
        self.port = 0

    def start(self) -> None:
        """Listen; after stop on the same port as before."""
        handler = type("BoundHandler", (Handler,), {"world": self.world})
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Stop listening and break every connection, as a restart does."""
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()
        self.world.cut()

    def kubeconfig(self) -> str:
        """Return a kubeconfig for this server, namespace team."""
        return f"""apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{self.port}"}}}}]
users: [{{name: test, user: {{token: a-token}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test, namespace: team}}}}]
"""
