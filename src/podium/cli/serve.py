"""`podium serve`."""

import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.options import authority, listen, storage_option, token_option
from podium.display.terminal import echo, paused
from podium.errors import InvalidInput, PodiumError
from podium.system.interrupts import hangup_terminates

if TYPE_CHECKING:
    import uvicorn

    from podium.serving.app import Server
    from podium.serving.rpc import RpcServer
    from podium.serving.served import Served


@click.command()
@click.argument("models", nargs=-1, metavar="[MODELS]...")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    help="Port to listen on for gRPC as well; 0 picks a free one.",
)
@click.option(
    "--follow",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="Seconds between checks for a new champion.",
)
@token_option("File with the bearer token that clients have to send.")
@click.option(
    "--tls-cert",
    type=click.Path(exists=True, dir_okay=False),
    help="PEM file of the certificate, for https.",
)
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False), help="PEM file of its key."
)
@click.option(
    "--max-body",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Maximum size of a request, in MiB.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Maximum number of requests in progress.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    help="Seconds until a request times out.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Processes of a model that is a command; by default one per core, at most 4.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds to keep serving after SIGTERM, until proxies send no more requests.",
)
@click.option(
    "--shadow",
    multiple=True,
    metavar="[NAME@]VERSION",
    help="Ask this version too, after the client has its answer.",
)
@click.option(
    "--canary",
    multiple=True,
    metavar="[NAME@]VERSION=SHARE%",
    help="Let this version answer a share of the requests.",
)
@click.option(
    "--record",
    metavar="URI",
    help="Directory or URI to record the answers of both versions in, for podium models promote --live.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Count items and predictions in bins of the training part, at /metrics.",
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of calls that --watch counts; all by default.",
)
@storage_option
def serve(
    models: tuple[str, ...],
    host: str,
    port: int,
    grpc_port: int | None,
    follow: float,
    token: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    max_body: int,
    max_requests: int,
    timeout: float,
    processes: int | None,
    drain: float,
    shadow: tuple[str, ...],
    canary: tuple[str, ...],
    record: str | None,
    watch: bool,
    sample: float | None,
    storage: str | None,
) -> None:
    """Serve the champion over HTTP and gRPC, or any version, file or directory, until stopped.

    MODELS are names in the registry (NAME, or NAME@VERSION for a fixed version) or paths of model
    directories; all models with a champion if none is named. The Open Inference Protocol v2 is at
    /v2, and with --grpc-port over gRPC; pictures, rows and sentences go to /v2/models/NAME/predict
    and are preprocessed as the training data were. A new champion takes over within --follow
    seconds without losing a request.
    Until all models are loaded, /v2/health/ready answers 503. On SIGTERM it finishes the requests
    in progress and exits; with --drain it keeps serving for that long first, reports that it is not
    ready, and closes each connection after its answer.

    \b
    Examples:
      podium serve mnist
      podium serve churn@v3 --port 9000 --token-file token.txt
      podium serve churn --watch --sample 0.1
      podium serve churn --canary v4=5%
      podium serve churn --grpc-port 8081
      podium serve churn --shadow v4 --record answers/
      podium serve trained/ --host 0.0.0.0
      curl -H "Content-Type: image/png" --data-binary @7.png localhost:8080/v2/models/mnist/predict
    """
    try:
        import uvicorn

        from podium.serving.app import Server
        from podium.serving.headers import DrainingServer, LimitedProtocol
        from podium.serving.service import Limits
    except ImportError as error:
        raise PodiumError(
            f"podium serve needs {error.name}", "pip install 'podium-ml[serve]'"
        ) from None
    from podium.models.split import Split
    from podium.prediction.pool import Processes
    from podium.serving.challenger import add_challengers
    from podium.serving.served import find_models

    _check_certificate(tls_cert, tls_key)
    if sample is not None and not watch:
        raise InvalidInput(f"--sample {sample:g} needs --watch", "add --watch")
    pool = Processes(count=processes or Processes.count, seconds=timeout)
    splits = [*map(Split.shadow, shadow), *map(Split.canary, canary)]
    if grpc_port and grpc_port == port:
        raise InvalidInput(
            f"--port and --grpc-port are both {port}", f"--grpc-port {port % 65535 + 1}"
        )
    served = find_models(models, storage, (sample or 1.0) if watch else None, pool)
    add_challengers(served, splits, record, timeout)
    limits = Limits(body=max_body << 20, requests=max_requests, seconds=timeout)
    server = Server(served, token=token or "", limits=limits, follow=follow)
    config = uvicorn.Config(
        server,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        http=LimitedProtocol,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        timeout_graceful_shutdown=int(timeout) + 1,
    )
    if grpc_port is not None:
        _add_grpc(server, host, grpc_port, (tls_key, tls_cert))
    listening = listen(host, port)  # who reads the next line may connect at once
    # Connections inherit it: else the second piece of an answer waits 40 ms for the client to
    # acknowledge the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = listening.getsockname()[1]
    url = f"{'https' if tls_cert else 'http'}://{authority(host, port)}/v2"
    _run(DrainingServer(config, server, drain), listening, served, url, server.rpc)


def _add_grpc(server: "Server", host: str, port: int, files: tuple[str | None, ...]) -> None:
    try:
        from podium.serving.rpc import RpcServer
    except ImportError as error:
        raise PodiumError(
            f"podium serve --grpc-port needs {error.name}", "pip install 'podium-ml[grpc]'"
        ) from None
    hint = "--grpc-port takes another, --grpc-port 0 a free one"
    with listen(host, port, hint) as free:  # which says in words that a port is taken
        port = free.getsockname()[1]
    address = authority(host, port)
    key, cert = (Path(file).read_bytes() if file else b"" for file in files)
    server.rpc = RpcServer(server.service, address, (key, cert) if key else None)
    echo(f"gRPC at {address}", err=True)


def _check_certificate(cert: str | None, key: str | None) -> None:
    if (cert is None) != (key is None):
        raise InvalidInput("--tls-cert and --tls-key go together", "give both, or neither")
    if cert and key:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
        except ssl.SSLError as error:
            raise InvalidInput(
                f"--tls-cert {cert} and --tls-key {key} do not go together: {error.reason}",
                f"openssl x509 -noout -text -in {cert}",
            ) from None


def _run(
    server: "uvicorn.Server",
    listening: socket.socket,
    models: "Sequence[Served]",
    url: str,
    rpc: "RpcServer | None",
) -> None:
    """Answer until the server is stopped, and open the models meanwhile: probes are answered from
    the first moment."""
    from podium.serving.announced import Announcement

    failures = list[Exception]()

    def open_models() -> None:
        try:
            for model in models:
                model.open()
                echo(f"serving {model.name} {model.now.version}{model.unwatched}", err=True)
                if model.challenger:
                    echo(_beside(model, model.challenger.served), err=True)
            if rpc:
                rpc.wait_until_listening()
            echo(f"listening on {url}", err=True)
        except Exception as error:
            failures.append(error)
            server.should_exit = True

    announcement = Announcement(url.removesuffix("/v2"), models)
    threading.Thread(target=open_models, daemon=True).start()
    try:
        with paused(), hangup_terminates():
            server.run(sockets=[listening])
    finally:
        announcement.close()
    if failures:
        raise failures[0]


def _beside(model: "Served", second: "Served") -> str:
    """Open a second version, and say what answers; one that cannot be keeps no champion from it."""
    try:
        second.open()
    except Exception as error:  # of a storage or a disk, for example
        second.trouble = (
            error.message if isinstance(error, PodiumError) else f"{type(error).__name__}: {error}"
        )
        return f"{model.name} {model.now.version} answers alone, without {second.name}: {second.trouble}"
    if second.now.version == model.now.version:
        return f"{second.name} is the champion {model.now.version}: until there is another one, nothing is compared"
    return f"serving {second.name} {second.now.version}{second.unwatched}"
