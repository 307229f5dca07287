"""A small Kubeflow Pipelines API server in memory, real HTTP: pipelines, versions, runs and recurring runs.

It answers as 2.0.5 or as 2.16.1 where the two differ in what podium depends on (observed on both): 500 or 409 for a
name that is taken.
"""

import email
import email.policy
import itertools
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

PREFIX = "/apis/v2beta1/"
NOW = "2026-01-01T00:00:00Z"


def stored(value: Any) -> Any:
    """Return what the server makes of a document: a whole float comes back as an int (observed)."""
    if isinstance(value, dict):
        return {key: stored(member) for key, member in value.items()}
    if isinstance(value, list):
        return [stored(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def paged(field: str, members: list[Any], query: dict[str, str]) -> dict[str, Any]:
    """Return a page of a list, of fewer members than were asked for: a server may bound them."""
    begin = int(query.get("page_token") or 0)
    end = begin + min(int(query.get("page_size") or 20), 3)
    rest = {"next_page_token": str(end)} if end < len(members) else {}
    return {field: members[begin:end], **rest}


class KfpWorld:
    """What the server knows."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.multi_user = False
        self.refused_account = ""
        """Account that the server does not allow (ALLOWEDSERVICEACCOUNTS of 2.18)."""
        self.account_of_others = ""
        """Account that the user has no right to use (multi-user mode of 2.18)."""
        self.numbers = itertools.count(1)
        self.pipelines: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, list[dict[str, Any]]] = {}
        self.experiments: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.recurring: dict[str, dict[str, Any]] = {}
        self.script: list[dict[str, Any]] = []
        self.requests: list[str] = []

    def new(self, kind: str) -> str:
        return f"{kind}-{next(self.numbers)}"

    def taken(self, what: str) -> tuple[int, dict[str, Any]]:
        words = f"Failed to create {what}"
        if self.release == "2.0.5":
            return 500, {
                "error": f"{words}: Already exist error: the name already exist",
                "code": 13,
            }
        return 409, {"message": words, "code": 6}

    def create_pipeline(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if any(
            pipeline["display_name"] == body["display_name"] for pipeline in self.pipelines.values()
        ):
            return self.taken("a pipeline")
        made = {**body, "pipeline_id": self.new("pipeline"), "created_at": NOW}
        self.pipelines[made["pipeline_id"]] = made
        self.versions[made["pipeline_id"]] = []
        return 200, made

    def upload(self, query: dict[str, str], text: str) -> tuple[int, dict[str, Any]]:
        versions = self.versions[query["pipelineid"]]
        if any(version["display_name"] == query["name"] for version in versions):
            return self.taken("a pipeline version")
        documents = [stored(document) for document in yaml.safe_load_all(text)]
        spec = (
            documents[0]
            if len(documents) == 1
            else {"pipeline_spec": documents[0], "platform_spec": documents[1]}
        )
        made = {
            "pipeline_id": query["pipelineid"],
            "pipeline_version_id": self.new("version"),
            "display_name": query["name"],
            "created_at": NOW,
            "pipeline_spec": spec,
        }
        versions.append(made)
        return 200, made

    def refusal(self, what: str, account: str | None) -> tuple[int, dict[str, Any]] | None:
        """Return 2.18's answer to an account. Read in kubeflow/pipelines: the words about a user
        (resource_manager.go), and of those about the list that they hold "not allowed"."""
        if account and account == self.refused_account:
            said = f"service account '{account}' is not allowed"
        elif account and account == self.account_of_others:
            said = (
                "User 'ann@example.com' is not authorized with reason:  (request: "
                "&ResourceAttributes{Namespace:team-a,Verb:use,Group:,Version:,Resource:"
                f"serviceaccounts,Subresource:,Name:{account},}}): Unauthorized access"
            )
        else:
            return None
        words = f"Failed to create a new {what}: PermissionDenied: {said}"
        return 403, {"error": words, "code": 7, "message": words}

    def run(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if refused := self.refusal("run", body.get("service_account")):
            return refused
        made = {**body, "run_id": self.new("run"), "state": "PENDING", "created_at": NOW}
        self.runs[made["run_id"]] = made
        return 200, made

    def next_state(self, run_id: str) -> tuple[int, dict[str, Any]]:
        if run_id not in self.runs:
            return 404, {
                "error": f"Failed to fetch run {run_id}: ResourceNotFoundError: Run {run_id} not found"
            }
        if self.script:
            self.runs[run_id].update(self.script.pop(0))
        return 200, self.runs[run_id]

    def recur(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if refused := self.refusal("recurring run", body.get("service_account")):
            return refused
        if not 1 <= int(body.get("max_concurrency", 1)) <= 10:
            return 400, {"message": "The max concurrency of the recurring run is out of range"}
        status = "ENABLED" if body.get("mode") == "ENABLE" else "DISABLED"
        made = {
            **body,
            "recurring_run_id": self.new("recurring"),
            "created_at": NOW,
            "status": status,
        }
        made["service_account"] = (
            body.get("service_account") or "pipeline-runner"
        )  # observed on 2.0.5
        self.recurring[made["recurring_run_id"]] = made
        return 200, made


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # or an answer's body waits 40 ms for the client to acknowledge its head
    )
    world: KfpWorld

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.route("GET")

    def do_POST(self) -> None:
        self.route("POST")

    def do_DELETE(self) -> None:
        self.route("DELETE")

    def route(self, method: str) -> None:
        url = urlsplit(self.path)
        path, query = (
            unquote(url.path.removeprefix(PREFIX)),
            {k: v[-1] for k, v in parse_qs(url.query).items()},
        )
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.world.requests.append(f"{method} {path}")
        code, body = self.answer(method, path, query, data)
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def answer(
        self, method: str, path: str, query: dict[str, str], data: bytes
    ) -> tuple[int, dict[str, Any]]:
        world = self.world
        if path == "pipelines/upload_version":
            return world.upload(query, self.file_in(data))
        body = json.loads(data) if data else {}
        if method == "POST" and path in ("pipelines", "runs", "recurringruns", "experiments"):
            return self.create(path, body)
        if method == "GET" and path in ("pipelines", "recurringruns", "experiments", "runs"):
            return 200, self.listed(path, query)
        if match := re.fullmatch(r"pipelines/([^/]+)/versions", path):
            return 200, paged("pipeline_versions", world.versions[match[1]], query)
        if match := re.fullmatch(r"runs/([^/:]+):terminate", path):
            if match[1] not in world.runs:
                return 404, {"error": f"Run {match[1]} not found"}
            world.runs[match[1]]["state"] = "CANCELING"
            return 200, {}
        if match := re.fullmatch(r"runs/([^/]+)", path):
            return world.next_state(match[1])
        if match := re.fullmatch(r"recurringruns/([^/:]+)(?::(enable|disable))?", path):
            if method == "DELETE":
                return 200, world.recurring.pop(match[1], {})
            world.recurring[match[1]]["status"] = "ENABLED" if match[2] == "enable" else "DISABLED"
            return 200, {}
        if path == "healthz":
            return 200, {"multi_user": world.multi_user}
        return 404, {"message": f"no route {method} {path}"}

    def create(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        world = self.world
        if path == "experiments":
            made = {**body, "experiment_id": world.new("experiment")}
            world.experiments[made["experiment_id"]] = made
            return 200, made
        return {
            "pipelines": world.create_pipeline,
            "runs": world.run,
            "recurringruns": world.recur,
        }[path](body)

    def listed(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        world = self.world
        tables = {"pipelines": world.pipelines, "recurringruns": world.recurring, "experiments": world.experiments,
                  "runs": world.runs}  # fmt: skip
        found = list(tables[path].values())
        if query.get("sort_by") == "created_at desc":
            found.reverse()
        for predicate in json.loads(query.get("filter", "{}")).get("predicates", []):
            found = [
                member for member in found if member[predicate["key"]] == predicate["stringValue"]
            ]
        return paged("recurringRuns" if path == "recurringruns" else path, found, query)

    def file_in(self, data: bytes) -> str:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = email.message_from_bytes(head + data, policy=email.policy.HTTP)
        part = next(iter(message.iter_parts()))
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        return payload.decode()


class KfpServer:
    """The server on a port of its own."""

    def __init__(self, release: str = "2.16.1") -> None:
        self.world = KfpWorld(release)
        self.port = 0
        self.start()

    def start(self) -> None:
        """Listen; after stop on the same port as before."""
        handler = type("BoundHandler", (Handler,), {"world": self.world})
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.host = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))
        self.thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()
