"""A connection to a Kubeflow Pipelines server whose errors quote the server.

Requests go through the generated client alone where they can: ``kfp.Client`` (2.17,
kfp/client/client.py) offers the same calls, but loads the Kubernetes client, a second of CPU.
"""

import contextlib
import io
import json
import logging
import os
import re
import shlex
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from podium.errors import Conflict, InvalidInput, NotFound, PodiumError
from podium.files.documents import load_json
from podium.system.pod import pod_namespace

_ENDPOINT = "KF_PIPELINES_ENDPOINT"
"""The kfp client's own variable for the server's address."""

_IAP_CLIENT = "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"
"""The kfp client's own variable for a server behind Google's proxy."""

CONTEXT = Path.home() / ".config/kfp/context.json"
"""The kfp client's namespace and cookies."""

HINT = f"give --host or set {_ENDPOINT}, for example: kubectl -n kubeflow port-forward svc/ml-pipeline 8888"


class Server:
    """A Kubeflow Pipelines API server: ``runs``, ``pipelines`` … are the generated client's.

    Args:
        host: Address such as ``http://127.0.0.1:8888``; None for KF_PIPELINES_ENDPOINT, else the
            service of the cluster this runs in, else that of the kubeconfig: the kfp client's own
            order.
        namespace: The user's namespace on a multi-user server; None for that in kfp's context file.
        token: Bearer token; None for the kfp client's own lookup.

    Raises:
        PodiumError: The server does not answer.
    """

    def __init__(
        self, host: str | None = None, namespace: str | None = None, token: str | None = None
    ) -> None:
        import kfp_server_api

        address = host or os.environ.get(_ENDPOINT) or ""
        ui = os.environ.get("KF_PIPELINES_UI_ENDPOINT", address)
        _refuse_password(address)
        _refuse_password(ui)
        if host:
            _require_listener(host)
        with _quiet():
            try:
                opened = (
                    _plain(address, token)
                    if _is_plain(address, token)
                    else _as_kfp_does(host, token)
                )
            except Exception as error:
                raise _no_server(error, host or _address(error)) from error
        self.api_client, own = opened
        self.namespace = namespace or own or None
        self.address = str(self.api_client.configuration.host)
        self.runs = kfp_server_api.RunServiceApi(self.api_client)
        self.pipelines = kfp_server_api.PipelineServiceApi(self.api_client)
        self.uploads = kfp_server_api.PipelineUploadServiceApi(self.api_client)
        self.recurring_runs = kfp_server_api.RecurringRunServiceApi(self.api_client)
        self.experiments = kfp_server_api.ExperimentServiceApi(self.api_client)
        self.silent_since: float | None = None
        """Start of the current outage, by time.monotonic; None while the server answers."""
        self.ui = (
            "/pipeline"
            if not ui
            else ui
            if ui.startswith(("http://", "https://"))
            else f"http://{ui}"
        )

    def call(self, doing: str, function: Callable[..., Any], **arguments: Any) -> Any:
        """Call a function of the generated client and suppress its output.

        Args:
            **arguments: Those that are None are left out: the client would send them as text.

        Raises:
            NotFound, Conflict, InvalidInput, PodiumError: "cannot DOING: " and the server's
            message.
        """
        from kfp_server_api import ApiException
        from urllib3.exceptions import HTTPError

        parameters = {name: value for name, value in arguments.items() if value is not None}
        try:
            with _quiet():
                answer = function(**parameters)
            self.silent_since = None
            return answer
        except ApiException as error:
            message = _message_of(error)
            text = f"cannot {doing}: {message}"
            if error.status == 404:
                raise NotFound(text) from error
            # 2.0.5 answers 500 where a name is taken (observed).
            if error.status == 409 or (error.status == 500 and "already exist" in message.lower()):
                raise Conflict(text) from error
            if refused := _account_refused(message):
                raise PodiumError(f"cannot {doing}: {refused[0]}", refused[1]) from error
            if error.status == 400:
                raise InvalidInput(text) from error
            hint = "check the token and the namespace" if error.status in (401, 403) else None
            raise PodiumError(text, hint) from error
        except HTTPError as error:
            self.silent_since = self.silent_since or time.monotonic()
            raise PodiumError(
                f"cannot {doing}: {self.address} does not answer: {_reason(error)}", HINT
            ) from error

    def pages(
        self, doing: str, function: Callable[..., Any], field: str, **arguments: Any
    ) -> Iterator[Any]:
        """Yield the items of every page of a list call."""
        token = ""
        while True:
            answer = self.call(doing, function, page_size=100, page_token=token, **arguments)
            yield from getattr(answer, field) or []
            token = answer.next_page_token or ""
            if not token:
                return

    def group(self, name: str) -> str:
        """Return the id of a KFP experiment (a folder of runs); create it if there is none."""
        from kfp_server_api import V2beta1Experiment

        doing, service = "open the group of runs", self.experiments
        find = partial(
            self.call,
            doing,
            service.experiment_service_list_experiments,
            filter=named(name),
            namespace=self.namespace,
        )
        listed = find().experiments
        if not listed:
            body = V2beta1Experiment(display_name=name, namespace=self.namespace)
            create = service.experiment_service_create_experiment
            try:
                listed = [self.call(doing, create, experiment=body)]
            except Conflict:  # somebody else was faster
                listed = find().experiments
        return str(listed[0].experiment_id)

    def link(self, path: str) -> str:
        """Return the address of a page of the UI."""
        return f"{self.ui.rstrip('/')}/#/{path}"


def named(name: str) -> str:
    """Return the filter of a list call for items of this display name."""
    return json.dumps(
        {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
    )


def _is_plain(address: str, token: str | None) -> bool:
    # Any other address needs what only kfp's client looks up: credentials, cookies, a context.
    if not address or (CONTEXT.exists() and not token):
        return False
    return bool(token) or not (
        os.environ.get(_IAP_CLIENT) or urlsplit(address).netloc.endswith("googleusercontent.com")
    )


def _plain(address: str, token: str | None) -> tuple[Any, str]:
    """Connect to an address, with a token or nothing; return the user's namespace as well, if the
    server has such."""
    from kfp_server_api import ApiClient, Configuration, HealthzServiceApi

    configuration = Configuration()
    configuration.host = (address if address.startswith("http") else f"https://{address}").rstrip(
        "/"
    )
    if token:
        configuration.api_key["authorization"], configuration.api_key_prefix["authorization"] = (
            token,
            "Bearer",
        )
    connection = ApiClient(configuration)
    many = HealthzServiceApi(connection).healthz_service_get_healthz().multi_user is True
    return connection, (pod_namespace() or "" if many else "")


def _as_kfp_does(host: str | None, token: str | None) -> tuple[Any, str]:
    """Connect as the kfp client does: in the cluster, by the kubeconfig, with its context file or
    Google's proxy."""
    from kfp.client import Client

    class ImpatientClient(Client):
        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            """Ask once: kfp asks for 25 seconds and logs a traceback each time."""
            return self.healthzs.healthz_service_get_healthz()

    client = ImpatientClient(host=host, existing_token=token)
    connection = client.healthzs.healthz_service_get_healthz.__self__.api_client
    return connection, str(client.get_user_namespace() or "")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


def _refuse_password(address: str) -> None:
    """Refuse an address that messages and links would show with a password, which no server gets:
    urllib3 does not send it."""
    if found := re.match(r"((?:\w+://)?)[^/?#]*@(.*)", address):
        raise InvalidInput(
            f"the address of a server must not hold a password: '{found[1]}…@{found[2]}'",
            f"leave it out: {found[1]}{found[2]}; to log in there is --token-file FILE",
        )


def _require_listener(host: str) -> None:
    """Fail within seconds if nothing listens; the kfp client tries for half a minute."""
    try:
        url = urlsplit(host if "://" in host else f"https://{host}")
        name, port = url.hostname, url.port or (80 if url.scheme == "http" else 443)
    except ValueError:  # an unclosed bracket, or a port that is not a number below 65536
        url, name, port = urlsplit(""), None, 0
    if url.scheme not in ("http", "https") or not name:
        raise InvalidInput(f"not a host: {host!r}", HINT)
    try:
        socket.create_connection((name, port), 5).close()
    except (
        OSError,
        UnicodeError,
    ) as error:  # UnicodeError: a label of the name is too long or empty
        raise PodiumError(f"{host} does not answer: {_reason(error)}", HINT) from error


def _message_of(error: Any) -> str:
    body = str(getattr(error, "body", None) or "").strip()
    with contextlib.suppress(AttributeError, InvalidInput):
        said = load_json(body, "the answer")
        if message := said.get("message") or said.get("error"):
            return str(message).strip()
    if getattr(error, "status", None) and (not body or body.startswith("<")):  # an HTML page
        return f"{error.status} {error.reason}"
    return body or str(error).strip()


_NOT_OURS = re.compile(
    r"User '([^']*)' is not authorized.*\bNamespace:([^,]*),Verb:use,.*"
    r"\bResource:serviceaccounts,.*\bName:([^,}]*)"
)
_NOT_ALLOWED = re.compile(r"service ?account \W*([\w.-]+)\W* is not allowed", re.IGNORECASE)


def _account_refused(message: str) -> tuple[str, str] | None:
    """Return sentence and hint where a server refuses the service account of a run, as KFP does
    from 2.18 on: one that its ALLOWEDSERVICEACCOUNTS lacks, or that the user may not ``use``."""
    if found := _NOT_OURS.search(message):
        user, namespace, account = found.groups()
        return (
            f"{user} may not use the service account {account} in namespace {namespace}",
            "a Role there has to grant the verb use, see docs/cluster-teams.md; try it with: kubectl"
            f" -n {namespace} auth can-i use serviceaccounts/{account} --as {shlex.quote(user)}",
        )
    if found := _NOT_ALLOWED.search(message):
        return (
            f"the server does not allow the service account {found[1]}",
            "an administrator adds it to the names that are allowed: kubectl -n kubeflow set env "
            f"deployment/ml-pipeline ALLOWEDSERVICEACCOUNTS=NAMES,{found[1]}",
        )
    return None


def _no_server(error: Exception, address: str) -> PodiumError:
    from kfp_server_api import ApiException

    if isinstance(error, ApiException):
        hint = "check the token" if error.status in (401, 403) else HINT
        return PodiumError(
            f"{address} does not answer as a Kubeflow Pipelines server: {_message_of(error)}", hint
        )
    return PodiumError(f"no Kubeflow Pipelines server answers at {address}: {_reason(error)}", HINT)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _address(error: Exception) -> str:
    for cause in _causes(error):
        pool: Any = getattr(cause, "pool", None)
        if hasattr(pool, "port"):
            return f"{pool.scheme}://{pool.host}:{pool.port}"
    return "the address that kfp is configured for"


def _reason(error: Exception) -> str:
    # The operating system's words, without the names of Python's classes around them.
    messages = (
        cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror
    )
    return next(messages, None) or str(error).strip()
