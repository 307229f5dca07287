"""Notifications about the end of a run: a webhook, as Slack and Mattermost take it, or a command
that reads the same JSON.

A notification that fails is a warning: what it tells of has ended all the same.
"""

import json
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from podium.display.terminal import echo
from podium.display.text import figure, one_line
from podium.errors import InvalidInput, PodiumError, Unavailable
from podium.files.documents import foreign
from podium.system.plugins import Table, blame
from podium.system.processes import signal_group

ANSWER = 10.0
"""Seconds a webhook has for everything: to be found, to take the notice, and to answer."""

END = 30.0
"""Seconds that a command may take."""

_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


@dataclass(kw_only=True)
class Notice:
    """Outcome of a run, filled in as it becomes known."""

    what: str
    """Stands before its name in the text: ``run``, ``Experiment``."""

    event: str = "end"
    """end, failure, or champion: it succeeded, and its model is the new champion."""

    run: str | None = None
    """Id of the run, or name of the Experiment or job."""

    pipeline: str | None = None
    status: str = "succeeded"
    """succeeded, failed or stopped."""

    model: str | None = None
    version: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    report: str | None = None
    reason: str = ""

    def fail(self, status: str, reason: str) -> None:
        """Make it the notice of a failure, with the first line of the reason."""
        first = _CREDENTIALS.sub("", reason.strip().partition("\n")[0])
        self.event, self.status, self.reason = "failure", status, first

    def body(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["what"], fields["reason"]
        return {"text": self.text, **fields}

    @property
    def text(self) -> str:
        """All of it as a sentence."""
        name = " ".join(
            word for word in (self.what, self.run, self.pipeline and f"of {self.pipeline}") if word
        )
        facts = [f"{metric} {figure(value)}" for metric, value in self.metrics.items()]
        if self.model:
            champion = "the new champion" if self.event == "champion" else "not promoted"
            facts = [f"{self.model} {self.version} is {champion}", *facts]
        detail = self.reason or ", ".join(facts)
        return f"podium: {name} {self.status}" + (f": {detail}" if detail else "")


@dataclass(frozen=True)
class _Webhook:
    """A URL that takes JSON by POST. Its path may be a secret, so only its host is ever shown."""

    url: str

    def send(self, body: bytes) -> None:
        """Post a notice; only a 2xx answer counts, and redirects are not followed.

        Raises:
            Unavailable: It was not taken.
        """
        shown = urlsplit(self.url).hostname
        failures: list[str] = []
        # In a thread, because the timeout of a socket begins anew with each byte, and a name's
        # lookup has none.
        posting = threading.Thread(target=self._post, args=(body, failures), daemon=True)
        posting.start()
        posting.join(ANSWER)
        if posting.is_alive():
            raise Unavailable(f"{shown} does not answer: nothing whole came within {ANSWER:g} s")
        if failures:
            raise Unavailable(f"{shown} {failures[0]}")

    def _post(self, body: bytes, failures: list[str]) -> None:
        """Post a notice; append errors in words that cannot hold the URL's path."""
        import urllib.error
        import urllib.request  # which loads HTTP and TLS

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        headers = {"Content-Type": "application/json", "User-Agent": "podium"}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=ANSWER):
                pass
        except urllib.error.HTTPError as error:
            failures.append(f"answered {error.code} {one_line(str(error.reason))[:80]}".rstrip())
        except urllib.error.URLError as error:
            failures.append(f"does not answer: {error.reason}")
        except OSError as error:
            failures.append(f"does not answer: {error.strerror or type(error).__name__}")
        except (
            Exception
        ) as error:  # what the server sent is no HTTP (http.client.BadStatusLine and others)
            failures.append(f"gave an answer that is no HTTP ({type(error).__name__})")


@dataclass(frozen=True)
class _Command:
    """A program that reads JSON from stdin."""

    words: tuple[str, ...]

    def send(self, body: bytes) -> None:
        """Run it with a notice; it and all it started are killed after END seconds.

        Raises:
            PodiumError: It did not start, or failed.
        """
        name = self.words[0]
        try:
            process = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise PodiumError(f"{name} cannot be started: {error.strerror}") from None
        try:
            _, said = process.communicate(body, timeout=END)
        except subprocess.TimeoutExpired:
            raise PodiumError(f"{name} did not end within {END:.0f} s") from None
        finally:
            if process.poll() is None:
                signal_group(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode:
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise PodiumError(
                f"{name} ended with exit code {process.returncode}" + (f": {last}" if last else "")
            )


class Target(Protocol):
    """Destination of notices."""

    def send(self, body: bytes) -> None:
        """Send a notice, JSON.

        Raises:
            PodiumError: It was not taken.
        """


def parse_target(text: str) -> Target:
    """Parse the value of --notify: a URL, or a command line.

    Raises:
        InvalidInput: The URL is not http:// or https://, or there is no such command.
    """
    if "://" in text.split(" ")[0]:
        with foreign("a webhook's URL begins with http:// or https:// and names a host", why=False):
            scheme = urlsplit(text).scheme
        return _NOTIFIERS.get(scheme, _webhook)(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"--notify {text!r} is not a command line: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise InvalidInput(
            f"there is no command {words[0] if words else ''!r} to notify",
            "give a URL, or a command line",
        )
    return _Command(tuple(words))


def _webhook(text: str) -> Target:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            f"a webhook's URL begins with http:// or https:// and names a host, but got {parts.scheme}://…",
            "for anything else name a command: it gets the JSON on stdin",
        )
    _check_url(text)
    return _Webhook(text)


_NOTIFIERS = Table[Callable[[str], Target]]("notifiers", {"http": _webhook, "https": _webhook})
"""By the scheme of a URL, what makes its target."""


def _check_url(url: str) -> None:
    """Refuse a URL that could not be posted to after the work, without showing its path."""
    try:
        port = urlsplit(url).port
        odd = next((character for character in url if not "!" <= character <= "~"), None)
    except ValueError as error:  # Port out of range 0-65535, or no number
        raise InvalidInput(f"a webhook's port is a number from 1 to 65535, but: {error}") from None
    if port == 0 or odd is not None:
        problem = "port 0" if port == 0 else f"the character {odd!r}"
        raise InvalidInput(
            f"a webhook's URL has {problem}, and could not be posted to",
            "write it as %20 and the like",
        )


@dataclass(frozen=True)
class Notifier:
    """Who is told at the end."""

    targets: tuple[Target, ...] = ()
    texts: tuple[str, ...] = ()
    """The values of --notify that name them."""

    @contextmanager
    def about(self, what: str, **fields: Any) -> Iterator[Notice]:
        """Notify when the context ends: of a failure if an error leaves it, else as the context
        filled in the notice. A target that fails is a warning.

        Args:
            what: ``run``, ``Experiment``, ``job``.
        """
        notice = Notice(what=what, **fields)
        try:
            yield notice
        except KeyboardInterrupt:
            notice.fail("stopped", "")
            raise
        except BaseException as error:
            notice.fail(
                "failed", error.message if isinstance(error, PodiumError) else type(error).__name__
            )
            raise
        finally:
            body = json.dumps(notice.body(), default=str).encode()
            for target in self.targets:
                try:
                    target.send(body)
                except Exception as error:
                    why = error.message if isinstance(error, PodiumError) else blame(error)
                    if not why:
                        raise
                    echo(f"warning: no notification was sent: {why}", err=True)
